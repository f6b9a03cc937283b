const luminance = (color) => {
  const parts = color.match(/[\d.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const ground = luminance(getComputedStyle(document.querySelector(".card")).backgroundColor);
const probe = document.createElement("i");
document.body.append(probe);
const found = {};
for (const name of arguments[0]) {
  probe.className = "";
  const value = getComputedStyle(document.documentElement).getPropertyValue(name);
  probe.style.color = value;
  const own = luminance(getComputedStyle(probe).color);
  found[name] = (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05);
}
probe.remove();
return [ground, found];
