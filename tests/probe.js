"use strict";
// What tests ask of a page, in the page: contrast as WCAG 2 counts it, and what lies over, outside or behind what.
window.probe = (() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const box = (element) => element.getBoundingClientRect();
  const middle = (element) => {
    const { left, top, width, height } = box(element);
    return [left + width / 2, top + height / 2];
  };

  // ---- colours: [red, green, blue], each 0 to 255; a layer has its opacity as a fourth ----

  const layers = (text) => [...text.matchAll(/rgba?\(([^)]*)\)/g)].map((found) => {
    const [red, green, blue, alpha = 1] = found[1].split(/[\s,/]+/).map(Number);
    return [red, green, blue, alpha];
  });
  const over = (below, layer) => below.map((value, index) => layer[3] * layer[index] + (1 - layer[3]) * value);
  const luminance = (colour) => {
    const linear = colour.map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };

  const chain = (element) => (element ? [...chain(element.parentElement), element] : []);

  // What the ancestors, the element among them, paint behind its middle.
  const background = (element) => {
    const [x, y] = middle(element);
    return chain(element).reduce((colour, one) => {
      const { left, right, top, bottom } = box(one);
      const whole = one === document.body || one === document.documentElement;
      if (!whole && (x < left || x > right || y < top || y > bottom)) return colour;
      const { backgroundColor, backgroundImage } = getComputedStyle(one);
      return [...layers(backgroundColor), ...layers(backgroundImage).slice(0, 1)].reduce(over, colour);
    }, [255, 255, 255]);
  };

  const ofText = (element) => {
    const behind = background(element);
    const opacity = chain(element).reduce((product, one) => product * Number(getComputedStyle(one).opacity), 1);
    const [red, green, blue, alpha] = layers(getComputedStyle(element).color)[0];
    return contrast(over(behind, [red, green, blue, alpha * opacity]), behind);
  };

  const hasText = (element) => [...element.childNodes].some(
    (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim());

  // All text that can be seen and is not switched off, with its contrast.
  const texts = () => all("body *")
    .filter((element) => element.matches("select") || hasText(element))
    .filter((element) => element.getClientRects().length && !element.closest("script, noscript, option, :disabled"))
    .map((element) => ({ text: element.textContent.slice(0, 30), contrast: ofText(element) }));

  // ---- places ----

  const within = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1
    && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
  const clipped = (element) => element.scrollWidth > element.clientWidth + 1
    || element.scrollHeight > element.clientHeight + 1;

  // Words whose letters do not all stand in their own box, or whose box leaves its panel.
  const cut = () => [
    ...all(".word").filter((word) => {
      const letters = word.firstChild;
      const hidden = getComputedStyle(letters).display !== "inline" && clipped(letters);
      return hidden || !within(box(letters), box(word)) || !within(box(word), box(word.closest(".panel")));
    }),
    ...all(".head").filter(clipped),
  ].map((element) => element.textContent);

  // Of one panel each: what scrolls inside a panel may be anywhere.
  const overlapping = (selector) => all(".panel").flatMap((panel) => {
    const boxes = [...panel.querySelectorAll(selector)].map((element) => [element.textContent, box(element)]);
    return boxes.flatMap(([text, one], index) => boxes.slice(index + 1)
      .filter(([, other]) => Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1
        && Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1)
      .map(([other]) => `${text} and ${other}`));
  });

  // Whether nothing lies over the middle of the element, and it is in the window.
  const inSight = (element) => {
    const found = document.elementFromPoint(...middle(element));
    return Boolean(found) && element.contains(found);
  };

  // How well the mark round the focused element stands out from the page; 0 without one. A radio button that is hidden
  // has it round its label.
  const ring = () => {
    const element = document.activeElement;
    const marked = element.type === "radio" ? element.labels[0] : element;
    const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(marked);
    if (outlineStyle === "none" || parseFloat(outlineWidth) < 2) return 0;
    return contrast(layers(outlineColor)[0].slice(0, 3), background(marked.parentElement));
  };

  const smallest = (selector) => Math.min(...all(selector).map((one) => parseFloat(getComputedStyle(one).fontSize)));

  return { all, middle, texts, cut, overlapping, inSight, ring, smallest };
})();
