"use strict";
// The explorer: a head, the questions that it wins and loses, two answers side by side. Text from
// questions and answers is only ever set as text. The address holds sweep, head and question.
const byId = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};
const signed = (value) => {
  const text = Math.abs(100 * value).toFixed(1);
  return text === "0.0" ? text : (value > 0 ? "+" : "−") + text;
};

// A link to a folded block unfolds it.
const unfold = () => {
  const found = location.hash.includes("/") ? null : byId(location.hash.slice(1));
  const fold = found?.id === "printed" && found.querySelector("details");
  if (fold) fold.open = true;
};
addEventListener("hashchange", unfold);
unfold();

// Every number says where it comes from.
addEventListener("pointerover", ({ target }) => {
  const number = target.closest?.("data");
  if (number && !number.title) number.title = `${number.closest("[data-from]").dataset.from}: ${number.dataset.key}`;
});

const PAGE = 8;
const WORD = { "▲": "shown to help", "▼": "shown to hurt", ".": "not shown to differ" };
const IN_GROUP = { ...WORD, "▲": "q < 0.05, gains", "▼": "q < 0.05, loses" };
const CUT = "not counted: answers that were cut may decide it";
// What is known of a head on all questions, group 0, or in a subject or level.
const finding = (one, group) => {
  const mark = one.marks[group];
  if (group) return IN_GROUP[mark];
  return one.cut_decides ? CUT : WORD[mark];
};

const explore = (sweeps) => {
  const root = document.querySelector(".explorer");
  const [head, list, panel] = ["head", "list", "question"].map((name) => root.querySelector(`.${name}`));
  const { strongest, steps } = root.dataset; // of the colours
  const maps = [...root.querySelectorAll(".map")];
  const pick = { sweep: byId("sweep"), group: byId("group") };
  const state = { sweep: 0, head: 0, question: null, group: 0, kind: "all", words: "", page: 0, inside: false };
  const bits = (text) => {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    return (place) => (bytes[place >> 3] >> (7 - (place & 7))) & 1;
  };

  for (const sweep of sweeps) {
    sweep.solved = bits(sweep.base);
    const all = sweep.questions.map((_, place) => place);
    sweep.groups = sweep.groups.map(([by, which, size, right]) => ({
      name: { overall: "all questions", subject: sweep.subjects[which], level: `level ${which}` }[by],
      places: by === "overall" ? all : all.filter((place) => sweep[by][place] === which), // of those on the page
      size, right,
    }));
    for (const one of sweep.heads) {
      one.solved = bits(one.bits);
      one.changed = one.answers && new Map(one.answers.map((entry) => [entry[0], entry]));
    }
  }
  const now = () => sweeps[state.sweep];
  const chosen = () => now().heads[state.head];
  const group = () => now().groups[state.group];
  const number = (table, column, row, value, text) => make(
    "data",
    { value: +value.toPrecision(6), "data-from": `controls/${now().name}/${table}.csv`, "data-key": `${column}@${row}` },
    text,
  );

  // The map
  const paint = () => {
    maps.forEach((map, place) => {
      map.hidden = place !== state.sweep;
      if (map.previousElementSibling?.tagName === "H3") map.previousElementSibling.hidden = map.hidden;
    });
    root.classList.toggle("broad", +maps[state.sweep].dataset.width > 12);
    const cells = new Map([...maps[state.sweep].querySelectorAll("button")].map((cell) => [cell.dataset.head, cell]));
    now().heads.forEach((one, place) => {
      const cell = cells.get(one.name);
      const gain = state.group ? (one.right[state.group] - group().right) / group().size : one.gain;
      // As `head_grid.colour`: each colour ends at half of the next one's.
      const doublings = Math.ceil(Math.log2(Math.abs(gain) / strongest) - 1e-9);
      const step = gain ? Math.min(Math.max(steps - 1 + doublings, 1), steps) : 0;
      const mark = one.marks[state.group];
      cell.className = `${step ? (gain > 0 ? "u" : "d") + step : ""}${one.removed ? " gone" : ""}`;
      cell.textContent = mark === "." ? "" : mark;
      cell.ariaLabel = cell.title = `${one.name}: ${signed(gain)} points, ${finding(one, state.group)}`;
      cell.setAttribute("aria-selected", place === state.head);
      cell.tabIndex = place === state.head ? 0 : -1;
    });
  };

  const describe = () => {
    const one = chosen(), { row } = one;
    const value = (column, text = signed(one[column])) => number("heads", column, row, one[column], text);
    const placebo = now().placebos.find(([layer]) => layer === one.layer);
    const facts = [
      ["Gain, by itself", value("gain"), " (", value("low"), " to ", value("high"), ")"],
      ["Test", `${finding(one, 0)}, p over all heads ${one.adjusted < 0.001 ? "" : "= "}`, value("adjusted", one.adjusted < 0.001 ? "< 0.001" : one.adjusted.toFixed(3))],
      placebo && ["Placebo", "best of its layer: ", number("gains", "placebo", placebo[2], placebo[1], signed(placebo[1]))],
      one.mode && ["Failure", `mostly: ${one.mode}`],
      one.removed && ["Removed", "for good, in a compression below"],
      state.group && [group().name, `${one.right[state.group]} right of ${group().size}, unpruned ${group().right}`],
    ];
    const heads = now().heads.length;
    const step = (by, label) => make("button", { type: "button", onclick: () => go(state.head + by), disabled: !now().heads[state.head + by] && "" }, label);
    head.replaceChildren(
      make("h3", {}, `Without ${one.name}`),
      make("p", { class: "big" }, value("accuracy", `${(100 * one.accuracy).toFixed(1)}%`), " right"),
      make("dl", {}, ...facts.filter(Boolean).flatMap(([name, ...text]) => [make("dt", {}, name), make("dd", {}, ...text)])),
      make("div", { class: "steps" }, step(-1, "← Previous"), step(1, "Next →"), make("span", { class: "note" }, `${state.head + 1} of ${heads}`)),
    );
  };

  // The questions
  const kindOf = (place) => {
    const before = now().solved(place), after = chosen().solved(place);
    return before === after ? "same" : after ? "won" : "lost";
  };
  const ofKind = (wanted) => group().places.filter((place) => {
    const kind = kindOf(place);
    return wanted === "all" ? kind !== "same" || chosen().changed?.has(place) : kind === wanted;
  });
  const found = () => {
    const words = state.words.toLowerCase(), rank = { won: 0, lost: 1, same: 2 };
    return ofKind(state.kind).filter((place) => {
      const [id, text] = now().questions[place];
      return `${id} ${text ?? ""}`.toLowerCase().includes(words);
    }).sort((a, b) => rank[kindOf(a)] - rank[kindOf(b)]);
  };
  const entries = make("ol"), pages = make("div", { class: "pages" }), kinds = make("fieldset"), part = make("p", { class: "note" });
  const search = make("input", {
    type: "search", placeholder: "Search questions", "aria-label": "Search questions",
    oninput: () => { state.words = search.value; state.page = 0; enumerate(); },
  });
  list.append(kinds, search, entries, pages, part);

  const enumerate = () => {
    const places = found(), last = Math.max(0, Math.ceil(places.length / PAGE) - 1);
    state.page = Math.min(state.page, last);
    const names = { won: "won", lost: "lost", all: "other words" };
    const focused = document.activeElement?.name === "kind";
    kinds.replaceChildren(make("legend", {}, "Questions"), ...Object.keys(names).map((kind) => make(
      "label", {},
      make("input", { type: "radio", name: "kind", value: kind, checked: state.kind === kind && "", onchange: () => { state.kind = kind; state.page = 0; enumerate(); } }),
      `${names[kind]} ${ofKind(kind).length}`,
    )));
    if (focused) kinds.querySelector(":checked").focus();
    entries.replaceChildren(...places.slice(PAGE * state.page, PAGE * (state.page + 1)).map((place) => {
      const [id, text] = now().questions[place], kind = kindOf(place);
      const mark = { won: "▲", lost: "▼", same: now().solved(place) ? "✓" : "✗" }[kind];
      return make("li", {}, make(
        "button",
        { type: "button", "data-place": place, "aria-current": place === state.question && "true", onclick: () => go(state.head, place) },
        make("b", { class: kind, "aria-label": kind === "same" ? `${now().solved(place) ? "right" : "wrong"} both times` : kind }, mark), make("span", { dir: "auto" }, text ?? id),
      ));
    }));
    const { length } = now().questions, { size } = now().groups[0];
    part.hidden = length === size;
    part.textContent = `${length} of ${size} questions are shown here; all are in ${now().store}.`;
    if (!places.length) entries.append(make("li", { class: "note" }, "No question."));
    const turn = (by, label) => make("button", { type: "button", "aria-label": label, disabled: (state.page + by < 0 || state.page + by > last) && "", onclick: () => { state.page += by; enumerate(); } }, by < 0 ? "←" : "→");
    pages.replaceChildren(...(last ? [turn(-1, "Earlier questions"), turn(1, "Later questions"), `page ${state.page + 1} of ${last + 1}`] : []));
  };

  // The two answers
  const answer = (one, place) => {
    const [, , , base, margin, cut] = now().questions[place];
    if (!one) return [base, margin, cut];
    if (!one.changed || base === null) return [null, null, false];
    const entry = one.changed.get(place);
    return entry ? [base.slice(0, entry[1]) + entry[2], entry[3], entry[4]] : [base, margin, cut];
  };
  const sharedEnd = (a, b, start) => {
    let end = 0;
    while (end < Math.min(a.length, b.length) - start && a.at(-1 - end) === b.at(-1 - end)) end += 1;
    if (end && /[\udc00-\udfff]/.test(a.at(-end))) end -= 1; // do not split a surrogate pair
    return end;
  };
  const side = (title, right, [text, margin, cut], start, end) => {
    const box = make("p", { class: "text", dir: "auto", tabindex: 0, "aria-label": `Answer ${title}` });
    if (text === null) box.append(make("i", {}, `The text is not on this page; answers lie in ${now().store}.`));
    else if (start === undefined) box.append(text);
    else box.append(text.slice(0, start), make("mark", {}, text.slice(start, text.length - end)), text.slice(text.length - end));
    return make("div", {},
      make("p", { class: "side" }, `${title} `, make("span", { class: right ? "won" : "lost" }, right ? "✓ right" : "✗ wrong"),
        make("small", {}, margin === null || margin === undefined ? "" : ` · margin ${margin}`, cut ? " · cut at the limit of tokens" : "")),
      box);
  };
  const solvers = (place) => {
    const row = make("div", { class: "solvers", role: "toolbar", "aria-label": "Heads without which it is solved" }, "Solved without:");
    let layer = null;
    now().heads.forEach((one, index) => {
      if (one.layer !== layer) row.append(make("span", {}, `L${(layer = one.layer)}`));
      const right = one.solved(place);
      row.append(make("button", {
        type: "button", class: right ? "right" : false, tabindex: index === state.head ? 0 : -1, "aria-pressed": String(index === state.head),
        "aria-label": `${one.name}: ${right ? "right" : "wrong"}`, title: one.name, onclick: () => go(index, place),
      }));
    });
    return row;
  };
  // Inside the head: what it reads and writes where the answers first differ.
  const hundredths = (value) => signed(value / 100).replace(/\d.*/, (Math.abs(value) / 100).toFixed(2));
  const quoted = (token) => make("bdi", { class: "token" }, token.replaceAll("\n", "↵") || "∅");
  const shaded = (text, read) => {
    const parts = [];
    let at = 0;
    for (const [start, length, weight] of [...read].sort((a, b) => a[0] - b[0])) {
      if (start < at) continue; // half a character
      const step = weight >= 50 ? 4 : weight >= 25 ? 3 : weight >= 10 ? 2 : 1;
      parts.push(text.slice(at, start), make("mark", { class: `w${step}`, title: `${weight}% of its attention` }, text.slice(start, start + length)));
      at = start + length;
    }
    return [...parts, text.slice(at)];
  };
  const inside = (one, place) => {
    const { looks } = now(), at = one.looks ? one.looks.of.indexOf(place) : -1;
    const box = make("details", { class: "inside", open: state.inside && "" }, make("summary", {}, `Look inside ${one.name} where the answers first differ`));
    box.addEventListener("toggle", () => { state.inside = box.open; });
    if (at < 0) {
      box.append(make("p", { class: "note" }, `No look here: ${looks?.why ?? "the answers are not on this page"}.`));
      return box;
    }
    const { tokens, effects, rank, end, read, peers } = one.looks;
    const [base, own] = tokens[at].map((token) => looks.tokens[token]), [onBase, onOwn] = effects[at];
    const [, question, , answer] = now().questions[place];
    const text = `${looks.before}${question}${looks.after}${answer}`.slice(0, end[at]);
    const towards = onBase - onOwn, rest = 100 - read[at].reduce((sum, [, , weight]) => sum + weight, 0);
    const meaning = Math.abs(towards) < 1 ? [`At this place ${one.name} itself pushes neither of the two tokens ahead`]
      : [`At this place ${one.name} itself pushes `, quoted(towards > 0 ? base : own), ` ahead of `, quoted(towards > 0 ? own : base), ` by ${(Math.abs(towards) / 100).toFixed(2)} logits`];
    const row = (token, of, effect) => make("tr", {}, make("th", { scope: "row" }, quoted(token)), make("td", { class: "word" }, of), make("td", {}, hundredths(effect)));
    box.append(
      make("p", {}, ...meaning, `; by size this effect is number ${rank[at]} of the ${peers} heads of its layer.`),
      make("div", { class: "sides" },
        make("div", {},
          make("p", { class: "side" }, "What it reads ", make("small", {}, "· stronger colour, more attention")),
          make("p", { class: "text", dir: "auto", tabindex: 0, "aria-label": "The text so far, with what the head reads" }, ...shaded(text, read[at]), make("b", { "aria-label": "here the answers differ" }, "▮")),
          make("ul", { class: "reads", "aria-label": "Tokens that it reads most" }, ...read[at].map(([start, length, weight]) => make("li", {}, quoted(text.slice(start, start + length)), ` ${weight}%`)), ...(rest > 0 ? [make("li", { class: "note" }, `all others ${rest}%`)] : [])),
        ),
        make("div", {},
          make("p", { class: "side" }, "What it writes ", make("small", {}, "· direct effect on the next token's logit")),
          make("table", { "aria-label": "Direct effects, in logits" }, make("tbody", {}, row(base, "unpruned", onBase), row(own, `without ${one.name}`, onOwn))),
          make("p", { class: "note" }, "A direct effect is not the whole effect: what later layers make of the head's output is not in it, and may turn it. Attention says where a head looks, not what for."),
        ),
      ),
    );
    return box;
  };
  const show = () => {
    if (state.question === null) {
      panel.replaceChildren(make("p", { class: "note" }, "Choose a question to see both answers."));
      return;
    }
    const place = state.question, one = chosen();
    const [id, text, gold] = now().questions[place];
    const before = answer(null, place), after = answer(one, place);
    const differ = before[0] !== null && after[0] !== null && before[0] !== after[0];
    const start = differ ? one.changed.get(place)[1] : undefined;
    const end = differ ? sharedEnd(before[0], after[0], start) : 0;
    const about = [now().subjects[now().subject[place]], now().level[place] && `level ${now().level[place]}`, gold !== null && `right answer ${gold}`, differ ? `differs at character ${start + 1}` : after[0] !== null && "same answer"];
    panel.replaceChildren(
      make("h3", {}, make("bdi", {}, id), " ", make("small", { class: "note" }, make("bdi", {}, about.filter(Boolean).join(" · ")))),
      ...(text === null ? [] : [make("p", { class: "asked", dir: "auto" }, text)]),
      make("div", { class: "sides" }, side("unpruned", now().solved(place), before, start, end), side(`without ${one.name}`, one.solved(place), after, start, end)),
      solvers(place),
      ...(differ ? [inside(one, place)] : []),
    );
    for (const mark of panel.querySelectorAll(".sides mark")) mark.parentElement.scrollTop = mark.offsetTop - 40;
  };

  // The address
  const address = () => `#${encodeURIComponent(now().name)}/${chosen().name}${state.question === null ? "" : `/q${state.question}`}`;
  const render = () => { paint(); describe(); enumerate(); show(); };
  const go = (index, place = null, keep = "pushState") => {
    if (!now().heads[index]) return;
    const focus = document.activeElement, where = focus?.closest?.(".solvers, .steps, ol");
    state.page = state.head === index ? state.page : 0;
    Object.assign(state, { head: index, question: place });
    history[keep](null, "", address());
    render();
    if (where?.matches(".solvers")) panel.querySelector(".solvers [tabindex='0']").focus();
    else if (where?.matches(".steps")) head.querySelectorAll(".steps button")[focus.textContent.startsWith("N") ? 1 : 0].focus();
    else if (where) entries.querySelector(`[data-place='${place}']`)?.focus();
  };
  const restore = () => {
    const [name, variant, question] = location.hash.slice(1).split("/");
    let decoded = "";
    try { decoded = decodeURIComponent(name); } catch { /* not an address of this page */ }
    const sweep = sweeps.findIndex((one) => one.name === decoded);
    const index = sweep < 0 ? -1 : sweeps[sweep].heads.findIndex((one) => one.name === variant);
    if (index < 0) return false;
    const place = /^q\d+$/.test(question ?? "") ? +question.slice(1) : null;
    if (sweep !== state.sweep) offer(sweep);
    Object.assign(state, { head: index, question: place !== null && place < now().questions.length ? place : null });
    render();
    return true;
  };
  const offer = (sweep) => {
    Object.assign(state, { sweep, group: 0, question: null, page: 0 });
    state.head = now().heads.reduce((best, one, place) => (one.gain > now().heads[best].gain ? place : best), 0);
    state.question = found()[0] ?? null;
    pick.sweep.value = sweep;
    pick.group.replaceChildren(...now().groups.map(({ name, size }, place) => make("option", { value: place }, `${name} (${size})`)));
  };

  root.previousElementSibling.hidden = false; // the menus
  pick.sweep.addEventListener("input", () => { offer(+pick.sweep.value); render(); });
  pick.group.addEventListener("input", () => { state.group = +pick.group.value; state.page = 0; render(); });
  addEventListener("popstate", restore);
  root.addEventListener("click", ({ target }) => {
    const cell = target.closest("[data-head]");
    if (cell) go(now().heads.findIndex((one) => one.name === cell.dataset.head));
  });
  // The head that an arrow key leads to: the next one, or the nearest of the next layer.
  const beside = (key) => {
    const { heads } = now(), { layer, head: number } = chosen();
    if (key === "ArrowLeft") return state.head - 1;
    if (key === "ArrowRight") return state.head + 1;
    const layers = [...new Set(heads.map((one) => one.layer))];
    const next = layers[layers.indexOf(layer) + (key === "ArrowDown" ? 1 : -1)];
    const away = (place) => (heads[place].layer === next ? Math.abs(heads[place].head - number) : Infinity);
    return next === undefined ? -1 : heads.reduce((best, _, place) => (away(place) < away(best) ? place : best), 0);
  };
  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return; // the browser's own
    const { key, target } = event;
    const focusMap = () => maps[state.sweep].querySelector("[tabindex='0']").focus();
    const across = key === "ArrowLeft" || key === "ArrowRight", along = key === "ArrowUp" || key === "ArrowDown";
    if (key === "Escape") { if (state.question !== null) go(state.head); focusMap(); }
    else if (key === "Enter" && target.closest(".map")) { entries.querySelector("button")?.focus(); event.preventDefault(); }
    else if ((across || along) && target.closest(".map")) { go(beside(key), null, "replaceState"); focusMap(); event.preventDefault(); }
    else if (across && target.closest(".solvers")) { go(beside(key), state.question, "replaceState"); event.preventDefault(); }
    else if (along && target.closest("ol")) {
      const item = target.closest("li");
      (key === "ArrowDown" ? item.nextElementSibling : item.previousElementSibling)?.querySelector("button")?.focus();
      event.preventDefault();
    }
  });
  offer(0);
  if (!restore()) render();
};
const embedded = byId("data");
if (embedded) explore(JSON.parse(embedded.textContent));
