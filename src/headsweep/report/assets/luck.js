"use strict";
// The luck of the best of many tries, as src/headsweep/statistics/luck.py, selection.py and power.py
// compute it; tests/report/test_luck_page.py holds each number against theirs.

const LEVEL = 0.95, POWER = 0.8, TOLERANCE = 1e-9, UNLIKELY = 1e-16;
const MOST_QUESTIONS = 2 ** 24;

// Special functions

// Lanczos' approximation, g = 7: some 15 digits.
const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
  -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
  1.5056327351493116e-7,
];
function logGamma(x) {
  let sum = LANCZOS[0];
  for (let place = 1; place < LANCZOS.length; place++) sum += LANCZOS[place] / (x - 1 + place);
  const shifted = x + 6.5;
  return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(shifted) - shifted + Math.log(sum);
}

// The regularised incomplete beta function by its continued fraction (Lentz).
function incompleteBeta(a, b, x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(b, a, 1 - x);
  const front = Math.exp(
    logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) / a;
  const tiny = 1e-300;
  let c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let fraction = d;
  for (let m = 1; m < 100000; m++) {
    let step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 + step * d;
    c = 1 + step / c;
    d = 1 / (Math.abs(d) < tiny ? tiny : d);
    if (Math.abs(c) < tiny) c = tiny;
    fraction *= d * c;
    step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 + step * d;
    c = 1 + step / c;
    d = 1 / (Math.abs(d) < tiny ? tiny : d);
    if (Math.abs(c) < tiny) c = tiny;
    fraction *= d * c;
    if (Math.abs(d * c - 1) < 1e-15) break;
  }
  return front * fraction;
}

// P(X <= count) and P(X = count) for X ~ Binomial(n, p).
function binomialAtMost(count, n, p) {
  if (count < 0) return 0;
  if (count >= n) return 1;
  return incompleteBeta(n - count, count + 1, 1 - p);
}
function binomial(count, n, p) {
  if (p <= 0) return count === 0 ? 1 : 0;
  if (p >= 1) return count === n ? 1 : 0;
  return Math.exp(logGamma(n + 1) - logGamma(count + 1) - logGamma(n - count + 1)
    + count * Math.log(p) + (n - count) * Math.log1p(-p));
}

// The best of many tries

// P(max X - B <= gain) for gain = -tossed - 1, ..., tossed + 1.
function atMost(tossed, tries) {
  const ofBase = [], ofAll = [];
  let reached = 0, sum = 0;
  for (let count = 0; count <= tossed; count++) {
    ofBase.push(binomial(count, tossed, 0.5));
    reached += ofBase[count];
    ofAll.push(Math.min(reached, 1) ** tries);
  }
  const found = new Array(2 * tossed + 3).fill(0);
  for (let count = 0; count <= tossed; count++) {
    if (ofBase[count] <= UNLIKELY) continue;
    sum += ofBase[count];
    for (let place = 0; place < found.length; place++) {
      const right = count + place - tossed - 1;
      if (right >= 0) found[place] += ofBase[count] * (right > tossed ? 1 : ofAll[right]);
    }
  }
  return found.map((chance) => chance / sum);
}

// Gains as fractions of the questions, and their probabilities.
function bestByLuck(questions, contested, tries) {
  const fewer = Math.floor(contested), share = contested - fewer;
  const one = [0, ...atMost(fewer, tries), 1], other = atMost(fewer + 1, tries);
  const reached = one.map((chance, place) => (1 - share) * chance + share * other[place]);
  const gains = reached.map((_, place) => (place - fewer - 2) / questions);
  const chances = reached.map((chance, place) => chance - (place ? reached[place - 1] : 0));
  return {
    expected: gains.reduce((sum, gain, place) => sum + gain * chances[place], 0),
    most: gains[reached.findIndex((chance) => chance >= LEVEL - TOLERANCE)],
    p: (gain) => chances.reduce(
      (sum, chance, place) => sum + (gains[place] >= gain - TOLERANCE ? chance : 0), 0),
  };
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
const total = (values) => values.reduce((sum, value) => sum + value, 0);

// How much of the spread between tries is noise, and which tries do not clearly hurt.
// `accuracy` has a row for each try, NaN where it is unknown.
function contestedOf(accuracy, sizes) {
  const groups = sizes.map((_, group) => group);
  const known = (row, group) => !Number.isNaN(row[group]);
  const middle = groups.map((group) => median(
    accuracy.filter((row) => known(row, group)).map((row) => row[group])));
  const scale = groups.map((group) => Math.sqrt(Math.max(
    middle[group] * (1 - middle[group]) / sizes[group], 0.25 / sizes[group] ** 2)));
  const ordinary = accuracy.map((row) => {
    const seen = groups.filter((group) => known(row, group));
    const below = total(seen.map((group) => (row[group] - middle[group]) * sizes[group]));
    const variance = total(seen.map((group) => (scale[group] * sizes[group]) ** 2));
    return below > -3.5 * Math.sqrt(Math.max(variance, 1e-12));
  });
  const kept = accuracy.filter((_, place) => ordinary[place]);
  const counts = groups.map((group) => kept.filter((row) => known(row, group)).length);
  const means = groups.map((group) => total(
    kept.filter((row) => known(row, group)).map((row) => row[group])) / Math.max(counts[group], 1));
  let squares = 0, products = 0, pairs = 0;
  for (const row of kept) {
    const deviations = groups.filter((group) => known(row, group)).map(
      (group) => (row[group] - means[group]) / scale[group]);
    const own = total(deviations.map((deviation) => deviation ** 2));
    squares += own;
    products += total(deviations) ** 2 - own;
    pairs += deviations.length * (deviations.length - 1);
  }
  const freedom = total(counts.map((count) => Math.max(count - 1, 0)));
  const spread = squares / Math.max(freedom, 1), common = products / Math.max(pairs, 1);
  return { noise: Math.min(Math.max(spread - Math.max(common, 0), 0), 1), ordinary };
}

// A row for each group of questions: its best gain, and what luck alone would give.
function ofTable({ groups, sizes, base, tries }) {
  const accuracy = tries.map((each) => each.accuracy);
  const used = groups.map((_, group) => group).filter(
    (group) => accuracy.some((row) => !Number.isNaN(row[group])));
  const only = (row) => used.map((group) => row[group]);
  const { noise, ordinary } = contestedOf(accuracy.map(only), only(sizes));
  return used.map((group) => {
    const values = accuracy.map((row) => row[group]);
    const known = values.filter((value) => !Number.isNaN(value));
    const candidates = values.filter((value, place) => ordinary[place] && !Number.isNaN(value));
    const mean = total(candidates) / candidates.length, n = sizes[group];
    const contested = 4 * mean * (1 - mean) * noise * n;
    const best = Math.max(...known), gain = best - base[group];
    const row = { group: groups[group], n, tries: known.length, base: base[group], gain, contested };
    row.best = tries[values.indexOf(best)].name;
    if (!candidates.length || Number.isNaN(gain)) return { ...row, p: NaN };
    const luck = bestByLuck(n, contested, candidates.length);
    row.changed = contested / 2 / n;
    return { ...row, by_chance: luck.expected, most: luck.most, p: luck.p(gain) };
  });
}

// How many questions settle it

// The largest number of lost ones among `changed` for which the test shows a gain; -1 for none.
function mostLost(changed, tail) {
  if (0.5 ** changed > tail) return -1;
  let low = 0, high = changed;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (binomialAtMost(middle, changed, 0.5) <= tail) low = middle;
    else high = middle;
  }
  return low;
}

function power(questions, changed, tests, gain) {
  const share = Math.max(changed, gain);
  if (!share) return 0;
  const tail = (1 - LEVEL) / 2 / tests;
  const middle = Math.round(questions * share);
  const width = Math.ceil(10 * Math.sqrt(questions * share)) + 50;
  let found = 0;
  const end = Math.min(questions, middle + width);
  for (let count = Math.max(0, middle - width); count <= end; count++) {
    const chance = binomial(count, questions, share);
    if (chance <= 1e-12) continue;
    const most = mostLost(count, tail);
    if (most >= 0) found += chance * binomialAtMost(most, count, (share - gain) / share / 2);
  }
  return found;
}

// How many questions show a gain with probability POWER, to two digits, rounded up; NaN if it takes
// more than MOST_QUESTIONS.
function questionsFor(gain, changed, tests) {
  let low = 0, high = 1;
  while (power(high, changed, tests, gain) < POWER) {
    if (high >= MOST_QUESTIONS) return NaN;
    low = high;
    high *= 2;
  }
  while (high - low > 1 + Math.floor(high / 1000)) {
    const middle = (low + high) >> 1;
    if (power(middle, changed, tests, gain) < POWER) low = middle;
    else high = middle;
  }
  const step = 10 ** Math.max(0, String(high).length - 2);
  return Math.ceil(high / step) * step;
}

const changedByChance = (base) => 2 * base * (1 - base);

// What is typed

// Read rows of cells between tabs, commas or semicolons: titles, questions, the base, the tries.
function parseTable(text) {
  const rows = text.split("\n").filter((line) => line.trim()).map(
    (line) => line.split(line.includes("\t") ? "\t" : /[,;]/).map((cell) => cell.trim()));
  if (rows.length < 5) throw new Error("A table has titles, questions, the base, and two tries or more.");
  const [titles, questions, unchanged, ...others] = rows;
  const wrong = rows.find((row) => row.length !== titles.length);
  if (wrong) throw new Error(`“${wrong[0]}” has ${wrong.length} cells, the titles have ${titles.length}.`);
  const sizes = questions.slice(1).map(Number);
  if (!sizes.every((size) => Number.isInteger(size) && size > 0)) {
    throw new Error("The second row has to say how many questions there are, as in 124.");
  }
  const numbers = [unchanged, ...others].flatMap((row) => row.slice(1)).filter((cell) => cell);
  const odd = numbers.find((cell) => !(Number(cell) >= 0 && Number(cell) <= 100));
  if (odd !== undefined) throw new Error(`“${odd}” is no accuracy; write 0.68 or 68.`);
  const unit = numbers.some((cell) => Number(cell) > 1) ? 100 : 1;
  // Each accuracy is a count of questions, which was printed with few digits.
  const counted = (row) => row.slice(1).map((cell, group) => (
    cell ? Math.round(Number(cell) / unit * sizes[group]) / sizes[group] : NaN));
  return {
    groups: titles.slice(1), sizes, base: counted(unchanged),
    tries: others.map((row) => ({ name: row[0], accuracy: counted(row) })),
  };
}

// The page

if (typeof document !== "undefined") {
  const byId = (id) => document.getElementById(id);
  const points = (share) => {
    const text = Math.abs(100 * share).toFixed(1);
    return text === "0.0" ? text : `${share < 0 ? "−" : "+"}${text}`;
  };
  const chance = (p) => (p < 0.001 ? "< 0.001" : p.toFixed(3));
  const count = (value) => value.toLocaleString("en-US");
  const asked = (gain, changed) => {
    const questions = questionsFor(gain, changed, 1);
    return Number.isNaN(questions) ? `More than ${count(MOST_QUESTIONS)}` : count(questions);
  };
  const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });

  const numberOf = (id) => (byId(id).value.trim() === "" ? NaN : Number(byId(id).value));
  const sentences = () => {
    const k = numberOf("k"), n = numberOf("n"), base = numberOf("base") / 100;
    if (!(Number.isInteger(k) && k >= 1 && Number.isInteger(n) && n >= 1 && n <= 1e5)) {
      return ["Tries and questions are whole numbers from 1; questions are 100,000 at most."];
    }
    if (!(base >= 0 && base <= 1)) return ["The base has 0 to 100% right."];
    const limit = Math.min(0.5, 2 * Math.min(base, 1 - base));
    const changed = byId("changed").value.trim() ? numberOf("changed") / 100 : changedByChance(base);
    if (!(changed >= 0 && changed <= limit + 1e-12)) {
      return [`Luck changes from 0 to ${+(100 * limit).toFixed(1)}% of the outcomes there.`];
    }
    const luck = bestByLuck(n, 2 * changed * n, k);
    const told = [`By luck alone the best gains ${points(luck.expected)} points on average, and at most `
      + `${points(luck.most)} in 95 of 100 draws.`];
    if (!byId("best").value.trim()) return told;
    const gain = numberOf("best") / 100 - base;
    const p = chance(luck.p(gain));
    told.push(`The best one seen gains ${points(gain)}: luck alone gives so much or more with p `
      + `${p.startsWith("<") ? p : `= ${p}`}.`);
    if (gain > 0) {
      told.push(`${asked(gain, changed)} fresh questions, asked of it and the base `
        + `alone, would show such a gain with probability ${POWER}.`);
    }
    return told;
  };
  const answer = () => byId("told").replaceChildren(...sentences().map((text) => element("p", text)));

  const cellsOf = (row) => {
    if (Number.isNaN(row.p)) return [row.group, count(row.n), "", "", "", "", "", ""];
    const settles = row.gain > 0 ? asked(row.gain, row.changed) : "";
    return [row.group, count(row.n), row.best, points(row.gain), points(row.by_chance),
      points(row.most), chance(row.p), settles];
  };
  const show = () => {
    const rows = byId("rows");
    let found;
    byId("judged").hidden = true;
    try {
      found = ofTable(parseTable(byId("table").value));
    } catch (error) {
      rows.replaceChildren();
      byId("summary").textContent = error.message;
      return;
    }
    rows.replaceChildren(...found.map((row) => {
      const line = document.createElement("tr");
      line.classList.toggle("beyond", row.p <= 0.05);
      line.append(...cellsOf(row).map((text, place) => element(place ? "td" : "th", text)));
      line.firstChild.scope = "row";
      return line;
    }));
    byId("judged").hidden = false;
    const judged = found.filter((row) => !Number.isNaN(row.p));
    const beyond = judged.filter((row) => row.p <= 0.05).length;
    byId("summary").textContent = `${beyond} of ${judged.length} best gains ${beyond === 1 ? "is" : "are"} `
      + "beyond what luck alone gives in 95 of 100 draws.";
  };

  const tables = JSON.parse(byId("data").textContent);
  byId("published").append(...tables.map((table, place) => {
    const option = element("option", table.title);
    option.value = place;
    return option;
  }));
  byId("published").addEventListener("change", (event) => {
    byId("table").value = tables[event.target.value].text;
    show();
  });
  byId("table").addEventListener("input", show);
  byId("numbers").addEventListener("input", answer);
  if (tables.length) byId("table").value = tables[0].text;
  else byId("published").parentElement.hidden = true;
  answer();
  show();
}
