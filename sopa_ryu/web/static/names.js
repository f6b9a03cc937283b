// What operators call switches and hosts, their racks and the labels of ports: shown and read here only, as topologies/aliases.py does.

const END = "(?:[ace]\\d{1,3}_\\d{1,3}|h\\d{1,3}_\\d{1,3}_\\d{1,3})";
const IN_TEXT = new RegExp(`(?<![\\w./-])(${END}(?:-${END})?)(?![\\w-])(?: port (\\d{1,3})\\b)?`, "g");

let known = new Map(); // own name -> {alias, rack, ports}
let owned = new Map(); // alias -> own name

/** Read the names from the controller; without an answer there are none. */
export async function load() {
  const items = [];
  try {
    for (let total = 1; items.length < total;) {
      const answer = await fetch(`/sopa/v1/names?offset=${items.length}`);
      if (!answer.ok) break;
      const body = await answer.json();
      items.push(...body.names);
      total = body.names.length ? body.total : 0;
    }
  } catch {
    // the page has own names then
  }
  known = new Map(items.map((item) => [item.name, item]));
  owned = new Map(items.filter(({ alias }) => alias).map(({ name, alias }) => [alias, name]));
}

/** Return the alias of a switch, host or link; undefined if it has none. */
export function aliasOf(name) {
  const ends = name.split("-").map((end) => known.get(end)?.alias);
  return ends.some(Boolean) ? ends.map((alias, at) => alias ?? name.split("-")[at]).join("-") : undefined;
}

/** Return where a switch or host is; undefined if that is not said. */
export const rackOf = (name) => known.get(name)?.rack;

/** Return the own name of what an alias names, a switch, host or link; any other text as it is. */
export function own(text) {
  if (owned.has(text)) return owned.get(text);
  const end = (part) => owned.get(part) ?? (part.includes("-") ? undefined : part);
  const parts = text.split("-");
  const read = parts.slice(1).map((_, at) => [end(parts.slice(0, at + 1).join("-")), end(parts.slice(at + 1).join("-"))]);
  const found = read.filter((ends) => ends.every(Boolean));
  return owned.size && found.length === 1 ? found[0].join("-") : text;
}

/** Return a text with its alias behind each own name, and its label behind each port. */
export function within(text) {
  if (!known.size) return text;
  return text.replace(IN_TEXT, (found, name, port, at) => {
    const alias = aliasOf(name);
    const label = port && known.get(name)?.ports?.[port];
    const shown = !alias || text.startsWith(` (${alias})`, at + name.length) ? name : `${name} (${alias})`;
    return shown + (port ? ` port ${port}` : "") + (label ? ` (${label})` : "");
  });
}
