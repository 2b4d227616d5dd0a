// What tests ask of a page.
const all = (selector) => [...document.querySelectorAll(selector)];
const shown = (selector) => all(selector).filter((one) => one.checkVisibility());
const texts = (selector) => shown(selector).map((one) => one.innerText);
const words = (selector) => document.querySelector(selector).innerText.split(/\s+/).filter(Boolean).length;
const bottoms = (selector) => all(selector).map((one) => one.getBoundingClientRect().bottom);
const height = () => document.documentElement.scrollHeight;
// An element as a reader of a failing test finds it: where it stands, where it ends, what it says.
const named = (one) => {
  const path = [];
  for (let each = one; each !== document.body; each = each.parentElement) {
    path.unshift(each.localName + (each.id && `#${each.id}`) + [...each.classList].map((name) => `.${name}`).join(""));
  }
  return `${path.slice(-5).join(" > ")} ends at ${Math.round(one.getBoundingClientRect().right)}: ${one.textContent.trim().slice(0, 30)}`;
};
const scrolls = (one) => /auto|scroll/.test(getComputedStyle(one).overflowX);
const inScroller = (one) => {
  for (let each = one.parentElement; each !== document.body; each = each.parentElement) if (scrolls(each)) return true;
  return false;
};
const beyond = () => shown("body *").filter((one) => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
  && !inScroller(one)).map(named);
// On a phone a table of numbers may scroll sideways where the font is wide.
const scrolling = () => shown("main *").filter((one) => scrolls(one)
  && (one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1)
  && !one.matches(innerWidth > 900 ? ".text, .asked" : ".text, .asked, .table")).map(named);
const dress = (style) => {
  const sheet = document.getElementById("dress") ?? document.head.appendChild(document.createElement("style"));
  sheet.id = "dress";
  sheet.textContent = `* { ${style} }`;
};
// Two more columns for every table.
const crowd = () => all(".table tr").forEach((row) => row.lastElementChild && row.append(
  row.lastElementChild.cloneNode(true), row.lastElementChild.cloneNode(true)));
const shifts = () => new Promise((done) => {
  let sum = 0;
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) sum += one.value;
  }).observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 200);
});
// Verdicts with the same answer stand below it, a line each.
const verdicts = () => shown(".verdicts p").map((one) => {
  const { textContent } = one.parentElement.querySelector("a");
  return [textContent, `${textContent} ${one.innerText}`];
});
const links = (selector) => all(selector).map((one) => one.getAttribute("href"));
const tables = () => shown("table").map((one) => [...one.tBodies[0].rows].map((row) => [...row.cells].map(
  (cell) => cell.textContent + cell.querySelectorAll("svg").length)));
// Whether each of several numbers beside a mark has the title that the hidden head of its table has.
const titled = () => shown(".strips tbody tr").filter((row) => row.cells.length > 3).map((row) => {
  const titles = row.closest("table").tHead.rows[0].cells;
  return [...row.cells].slice(2).map((cell) => cell.dataset.title === titles[cell.cellIndex].textContent
    && getComputedStyle(cell, "::before").content.includes(cell.dataset.title));
});
const drawn = () => all("svg.plot, figure img").every((one) => one.childElementCount || one.naturalWidth && one.alt.length > 20);
const numbers = () => all("data").map((one) => [one.closest("[data-from]").dataset.from, one.dataset.key, one.value, one.textContent]);
// Whether a pointer over a number says its file and row.
const traced = () => all("data").every((one) => {
  one.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
  return one.title === `${one.closest("[data-from]").dataset.from}: ${one.dataset.key}`;
});
const unnamed = () => shown("button, select, input, summary, a").filter(
  (one) => !(one.textContent.trim() || one.ariaLabel || one.title || one.labels?.length)).length
  + all("svg").filter((one) => one.ariaHidden !== "true" && !one.closest("svg[role=img]") && !one.ariaLabel).length;
const alternatives = () => all("svg[aria-label]").map((one) => one.ariaLabel);
const doubled = () => all("[id]").length - new Set(all("[id]").map((one) => one.id)).size;
// Contrast by WCAG 2 and size of type, of every text that is seen.
const legible = () => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const light = (color) => {
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((one) => (
      one / 255 <= 0.04045 ? one / 255 / 12.92 : ((one / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
    return "#fff";
  };
  const own = (one) => [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
  return shown("body *").filter(own).map((one) => {
    const style = getComputedStyle(one), color = one instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(color), light(behind(one))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), parseFloat(style.fontSize), `${one.tagName} ${one.textContent.slice(0, 30)}`];
  });
};
