// Creates and updates elements. Text is only inserted as text: no code of the page parses HTML. Names in it have their aliases.

import { within } from "./names.js";

const SVG = "http://www.w3.org/2000/svg";

/** Return the element with that id. */
export const byId = (id) => document.getElementById(id);

/** Create an HTML element with attributes (a function becomes a listener: `onclick`) and children (elements or texts). */
export function html(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null).map((child) => (typeof child === "string" ? within(child) : child)));
  return element;
}

/** Return the outline of a diamond around the origin. */
export const diamond = (r) => `M0 ${-r}L${r} 0L0 ${r}L${-r} 0Z`;

/** Set a text if it differs, so that unchanged text is neither redrawn nor announced again. */
export function setText(element, text) {
  const shown = within(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Set an attribute if it differs; a label is a text. */
export function setAttribute(element, name, value) {
  const its = name === "aria-label" ? within(value) : value;
  if (element.getAttribute(name) !== its) element.setAttribute(name, its);
}

/** Show a text, or hide its element if the text is empty. */
export function say(element, text) {
  setText(element, text || "");
  element.hidden = !text;
}

/**
 * Update a list's children to match items. An item that remains keeps its element, and with it the keyboard's focus.
 * @param {Element} parent
 * @param {Array} items
 * @param {(item) => string} key identifies an item
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

/** Format a rate in bits per second. */
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

/** Format a share as a percentage. */
export const percent = (share) => `${Math.round(100 * share)} %`;

/** Format a time of day, HH:MM:SS. */
export function clock(date) {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** Format a time in seconds since 1970; one of today has no date. */
export function when(seconds) {
  const date = new Date(1000 * seconds);
  const day = [date.getFullYear(), date.getMonth() + 1, date.getDate()].map((part) => String(part).padStart(2, "0")).join("-");
  return date.toDateString() === new Date().toDateString() ? clock(date) : `${day} ${clock(date)}`;
}

/** Begin a text with a capital letter. */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Format a number with its noun: `count(1, "link")` is "1 link". */
export const count = (number, what, several = `${what}s`) => `${number} ${number === 1 ? what : several}`;
