// Making and changing elements. Text only ever becomes text: nothing here, or anywhere on the page, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with that id. */
export const byId = (id) => document.getElementById(id);

/** A new HTML element: attributes (functions become listeners: `onclick`), then children, elements or texts. */
export function html(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** A new SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Set a text, if it is another one: what does not change is not drawn again, nor read out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Set an attribute, if it is another one. */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Show a text, or hide its element if there is none. */
export function say(element, text) {
  setText(element, text || "");
  element.hidden = !text;
}

/**
 * Bring a list's children in line with items. An item that is still there keeps its element, and with it the keyboard's focus.
 * @param {Element} parent
 * @param {Array} items
 * @param {(item) => string} key tells items apart
 * @param {(item) => Element} make
 * @param {(element: Element, item) => void} update
 */
export function follow(parent, items, key, make, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = before.get(name);
    before.delete(name);
    if (!element) {
      element = make(item);
      element.dataset.key = name;
    }
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
    update(element, item);
  }
  for (const gone of before.values()) gone.remove();
}

/** Bits a second, in words. */
export function rate(bits) {
  if (bits === null || bits === undefined) return "unknown";
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
  let unit = 0;
  while (bits >= 1000 && unit < units.length - 1) {
    bits /= 1000;
    unit += 1;
  }
  return `${bits >= 100 || unit === 0 ? Math.round(bits) : bits.toPrecision(2)} ${units[unit]}`;
}

/** A share in percent. */
export const percent = (share) => `${Math.round(100 * share)} %`;

/** A time of day, HH:MM:SS. */
export function clock(date) {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** One thing, or several: `count(1, "link")` is "1 link". */
export const count = (number, what, several = `${what}s`) => `${number} ${number === 1 ? what : several}`;
