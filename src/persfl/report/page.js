"use strict";
(() => {
  const info = JSON.parse(document.getElementById("data").textContent);
  const { devices, worth, help, loss, words } = info;
  const ids = devices.ids,
    n = ids.length;
  const measured = worth ? worth.device : null;
  const blended = Boolean(info.made_of) && info.made_of.names.includes("neighbours");
  const steps = blended ? "what it took from neighbours" : "the steps it adopted";
  const nobody = help.met.every(k => !k);
  const chosen = { index: 0 };
  let printing = false;

  // ---- making elements: every text goes in as a text node, never as markup, and no number leaves its % alone on the next line
  const SVG = "http://www.w3.org/2000/svg"; // a name, not an address: nothing is fetched
  const $ = id => document.getElementById(id);
  const together = child => (typeof child === "string" ? child.replace(/(\d) %/g, `$1${SPACE}%`) : child);
  const there = child => child !== null && child !== undefined && child !== false;
  function made(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat(9).filter(there).map(together));
    return node;
  }
  const h = (tag, attributes, ...children) => made(document.createElement(tag), attributes, children);
  const s = (tag, attributes, ...children) => made(document.createElementNS(SVG, tag), attributes, children);
  const put = (id, ...children) => $(id).replaceChildren(...children.flat(9).filter(Boolean).map(together));

  // ---- numbers as text
  const NONE = "\u2013",
    MINUS = "\u2212",
    SPACE = "\u00a0";
  const missing = x => x === null || x === undefined || !Number.isFinite(x);
  const signed = text => text.replace("-", MINUS);
  const grouped = text => text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const count = x => (missing(x) ? NONE : Number.isInteger(x) ? signed(grouped(String(x))) : num(x));
  const taken = x => (missing(x) || Number.isInteger(x) ? count(x) : x < 0.01 ? "< 0.01" : x.toFixed(2)); // answers, or parts of one
  function num(x) {
    if (missing(x)) return NONE;
    const size = Math.abs(x);
    if (size === 0) return "0";
    if (size < 1e-4 || size >= 1e12) return x.toExponential(2).replace("e+", "e").replace(/-/g, MINUS);
    if (size >= 1000) return signed(grouped(x.toFixed(0)));
    return signed(x.toPrecision(3));
  }
  function percent(x) {
    if (missing(x)) return NONE;
    const value = 100 * x,
      text = Math.abs(value) < 9.95 && value !== 0 ? value.toFixed(1) : value.toFixed(0);
    return signed(grouped(text.replace(/^-(0(\.0)?)$/, "$1"))) + SPACE + "%";
  }
  const span = (low, high) => (missing(low) || missing(high) ? NONE : `${percent(low)} to ${percent(high)}`);
  const shown = id => (String(id).trim() === "" ? "(blank name)" : String(id));
  // A letter may be several units of text: with an accent, or from beyond the first 65,536.
  const letters = text => (Intl.Segmenter ? Array.from(new Intl.Segmenter("en").segment(text), part => part.segment) : [...text]);
  const begin = (text, most) =>
    letters(text.slice(0, 12 * most))
      .slice(0, most)
      .join("");
  const brief = id => (shown(id).length > 40 ? begin(shown(id), 39).trimEnd() + "\u2026" : shown(id));
  const many = (k, word) => `${count(k)} ${word}${k === 1 ? "" : "s"}`;
  function median(values) {
    const sorted = values.filter(x => !missing(x)).sort((a, b) => a - b),
      k = sorted.length;
    return k ? (sorted[(k - 1) >> 1] + sorted[k >> 1]) / 2 : null;
  }
  const kind = (low, high) => (missing(low) || missing(high) ? "unknown" : low > 0 ? "lower" : high < 0 ? "higher" : "same");
  const KINDS = {
    better: "lower",
    worse: "higher",
    helps: "lower",
    "helps here": "lower",
    hurts: "higher",
    "no clear difference": "same",
    "no clear difference on average, better for most": "same",
    "no clear difference on average, worse for most": "same",
    "better on average, worse for most": "same",
    "worse on average, better for most": "same",
    "cannot tell": "same",
  };
  const tag = says => (says ? h("span", { class: "tag " + (KINDS[says] || "unknown") }, says) : NONE);
  // What is said to one device: a few words, and what similar devices gained.
  function told(says) {
    if (!says) return NONE;
    const [first, ...rest] = says.split("; ");
    return [tag(first), rest.length ? h("small", null, rest.join("; ")) : null];
  }

  // ---- axes
  function ticks(low, high, about) {
    const raw = (high - low) / about || 1,
      power = 10 ** Math.floor(Math.log10(raw)),
      rest = raw / power;
    const step = power * (rest < 1.5 ? 1 : rest < 3.5 ? 2 : rest < 7.5 ? 5 : 10),
      found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
    return found;
  }
  const line = (x1, y1, x2, y2, name) => s("line", { x1, y1, x2, y2, class: name });
  const pen = document.createElement("canvas").getContext("2d");
  function wideness(text, size = 12) {
    pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  }
  function fit(text, room, size = 12) {
    const kept = letters(begin(text, 120).replace(/\s+/g, " "));
    if (wideness(kept.join(""), size) <= room) return kept.join("");
    while (kept.length && wideness(kept.join("") + "\u2026", size) > room) kept.pop();
    return kept.join("").trimEnd() + "\u2026";
  }
  const widest = (texts, most, size = 12) =>
    Math.min(most, Math.ceil(Math.max(0, ...texts.map(text => wideness(begin(text, 120), size)))) + 2);
  // As many marks of an axis as have room: none touches the next.
  function marks(scale, about, x, form, size = 12) {
    const room = value => wideness(form(value), size) / 2 + 4,
      free = (value, k, all) => !k || x(value) - x(all[k - 1]) >= room(value) + room(all[k - 1]);
    let found = ticks(scale.low, scale.high, about);
    while (about > 1 && !found.every(free)) found = ticks(scale.low, scale.high, --about);
    return found.filter(free);
  }
  // The middle of a text that is to stand at x and must not leave a picture of this width.
  function within(x, text, wide, size = 12) {
    const half = wideness(text, size) / 2 + 1;
    return Math.max(half, Math.min(wide - half, x));
  }
  // The share of error removed is at most 1 but has no lower end: far values are drawn at the edge.
  function gainScale(lows, highs) {
    const low = Math.max(-1, Math.min(0, ...lows.filter(x => !missing(x)))),
      high = Math.min(1, Math.max(0, ...highs.filter(x => !missing(x))));
    const wide = high - low || 1;
    return { low: low < 0 ? low - 0.04 * wide : 0, high: Math.min(1, high + 0.04 * wide) || 1 };
  }

  // ---- charts are drawn for the width they have, and again when it changes
  const charts = [];
  const SHEET = 650; // pixels that the margins leave of A4, and a little less
  const width = box => (printing ? SHEET : Math.max(240, Math.floor(box.parentElement.getBoundingClientRect().width)));
  function chart(box, draw) {
    const again = () => box.replaceChildren(...[draw(width(box))].flat().filter(Boolean));
    charts.push(again);
    again();
  }
  const redraw = () => {
    charts.forEach(again => again());
    settle();
  };
  let drawn = 0; // the width of the last drawing; a page opened in the background starts with none
  new ResizeObserver(() => {
    const now = $("main").clientWidth;
    if (printing) return;
    if (now !== drawn) redraw();
    else settle(); // larger letters alone can make a table too wide
    drawn = now;
  }).observe($("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  function paper(on) {
    printing = on;
    document.documentElement.classList.toggle("on-paper", on);
    devicePage();
    redraw();
  }
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));

  // ---- the tip beside the pointer
  const tip = $("tip");
  function point(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 10) : y + 18) + "px";
  }
  const unpoint = () => {
    tip.hidden = true;
  };
  addEventListener("scroll", unpoint, { passive: true });
  const say = text => {
    $("live").textContent = text;
  };

  // ---- tables
  // A table that is wider than its place stands as cards, one to a row, with the column's name above each number: nothing is
  // out of sight. Roles are said in full, because a browser may forget them when rows are not laid out as rows.
  const ROLES = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };
  const HEADS = { col: "columnheader", row: "rowheader", rowgroup: "rowheader" };
  const fitting = table => h("div", { class: "fitting" }, table);
  function arrange(box) {
    const table = box.firstChild,
      names = [...table.tHead.rows[0].cells].map(cell => cell.dataset.name);
    for (const part of [table, ...table.querySelectorAll("thead, tbody, tr, th, td")])
      part.setAttribute("role", part.tagName === "TH" ? HEADS[part.scope] : ROLES[part.tagName]);
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, k) => cell.tagName === "TD" && cell.setAttribute("data-label", names[k]));
    table.classList.remove("cards");
    table.classList.toggle("cards", table.offsetWidth > box.clientWidth);
  }
  function settle() {
    document.querySelectorAll(".fitting").forEach(arrange);
    for (const box of document.querySelectorAll(".scroll")) {
      const over = box.scrollWidth > box.clientWidth;
      box.previousSibling.hidden = !over;
      box.tabIndex = over ? 0 : -1; // whoever has no pointer scrolls what has the focus
    }
  }
  const head = columns =>
    h(
      "thead",
      null,
      h(
        "tr",
        null,
        columns.map(([name, cls, extra]) => h("th", { scope: "col", class: cls, "data-name": together(name) }, name, extra)),
      ),
    );
  // A long name breaks after its marks rather than in the middle of a word.
  const parted = id => shown(id).split(/(?<=[_./:-])/).flatMap((part, k) => (k ? [h("wbr"), part] : [part]));
  const link = (index, name = parted) =>
    h(
      "button",
      {
        type: "button",
        class: "link",
        title: shown(ids[index]).length > 40 ? shown(ids[index]) : null,
        onclick: event => {
          event.stopPropagation();
          choose(index, true);
        },
      },
      name(ids[index]),
    );
  function whisker(row, scale, wide, cls) {
    const x = value =>
      6 + ((wide - 12) * (Math.min(scale.high, Math.max(scale.low, value)) - scale.low)) / (scale.high - scale.low);
    const svg = s("svg", { width: wide, height: 18, viewBox: `0 0 ${wide} 18`, "aria-hidden": "true" });
    if (scale.low <= 0 && scale.high >= 0) svg.append(line(x(0), 0, x(0), 18, "zero"));
    if (missing(row.value)) return svg;
    if (!missing(row.low) && !missing(row.high))
      svg.append(s("line", { x1: x(row.low), x2: x(row.high), y1: 9, y2: 9, class: "pen-" + cls, "stroke-width": 2 }));
    svg.append(s("circle", { cx: x(row.value), cy: 9, r: 4.5, class: "bar-" + cls }));
    return svg;
  }
  function axis(scale, wide, form) {
    const x = value => 6 + ((wide - 12) * (value - scale.low)) / (scale.high - scale.low),
      at = value => within(x(value), form(value), wide, 11);
    return s(
      "svg",
      { width: wide, height: 14, viewBox: `0 0 ${wide} 14`, "aria-hidden": "true" },
      marks(scale, 3, at, form, 11).map(value =>
        s("text", { x: at(value), y: 11, "font-size": 11, "text-anchor": "middle" }, form(value)),
      ),
    );
  }
  const whole = x => signed(String(Math.round(100 * x))) + SPACE + "%";

  // An option such as --label is not broken behind its dashes.
  function options(text) {
    const parts = text.textContent.split(/(--\S+)/);
    text.replaceChildren(...parts.map((part, k) => (k % 2 ? h("span", { class: "option" }, part) : part)));
  }

  // ---- the answer
  function answer() {
    put(
      "notes",
      info.method ? h("p", { id: "method" }, info.method) : null,
      info.notes.length
        ? h(
            "div",
            { class: "callout", role: "note" },
            info.notes.map(note => h("p", null, note)),
          )
        : null,
    );
    document.querySelectorAll("#how code, #notes p").forEach(options);
    if (!worth) {
      put(
        "verdict",
        "No rows were kept back, so this run cannot say whether learning together is worth it. It can say who was adopted by whom.",
      );
      return;
    }
    $("verdict").classList.add(KINDS[worth.headline.says] || "same");
    const rows = [...worth.arms, ...worth.groups],
      scale = gainScale(
        rows.map(row => row.low),
        rows.map(row => row.high),
      );
    const mistakes = worth.arms.some(arm => !missing(arm.mistakes)),
      own = arm => (mistakes ? percent(arm.mistakes) : num(arm.off_by)),
      wide = 150;
    const cells = row =>
      missing(row.gain)
        ? [h("td"), h("td"), h("td"), h("td")]
        : [
            h(
              "td",
              { class: "drawn" },
              whisker({ value: row.gain, low: row.low, high: row.high }, scale, wide, kind(row.low, row.high)),
            ),
            h("td", { class: "n" }, percent(row.gain)),
            h("td", { class: "t" }, span(row.low, row.high)),
            h("td", { class: "t" }, row.is ? tag(row.is) : null),
          ];
    const data = row => ({
      "data-gain": row.gain,
      "data-low": row.low,
      "data-high": row.high,
      "data-error": row.error,
      "data-median": row.median,
    });
    const gainHead = () => [
      ["error removed by personalizing", "", axis(scale, wide, whole)],
      ["removed", "n"],
      ["95 % interval", ""],
      ["personalized is", ""],
    ];
    put(
      "arms",
      h("h3", null, "Against what else could be done"),
      h(
        "p",
        { class: "read" },
        `Error is the ${words.error}, judged on ${many(worth.rows, "row")} that were kept back from training; smaller is better. `,
        mistakes ? null : `\u201cOff by\u201d is the root of the mean squared error, in units of ${words.label}. `,
        "The columns on the right say what the personalized models are beside each: right of the line they are better. ",
        worth.expected || null,
      ),
      fitting(
        h(
          "table",
          null,
          h("caption", { class: "unseen" }, "Error of every kind of model, and what personalizing removes of it"),
          head([["model", ""], ["error", "n"], ["median device", "n"], [mistakes ? "mistakes" : "off by", "n"], ...gainHead()]),
          h(
            "tbody",
            null,
            worth.arms.map(arm =>
              h(
                "tr",
                {
                  class: arm.lowest ? "best" : null,
                  "data-arm": arm.key,
                  "data-off": arm.off_by,
                  "data-lowest": arm.lowest,
                  ...data(arm),
                },
                h("th", { scope: "row", class: "arm" }, arm.name, arm.lowest ? h("small", null, "lowest error") : null),
                h("td", { class: "n" }, num(arm.error)),
                h("td", { class: "n" }, num(arm.median)),
                h("td", { class: "n" }, own(arm)),
                cells(arm),
              ),
            ),
          ),
        ),
      ),
    );
    const kinds = [...new Set(worth.groups.map(group => group.kind))];
    if (kinds.length)
      put(
        "groups",
        h("h3", null, "For which devices"),
        h(
          "p",
          { class: "read" },
          "The same gain over a device's own model, for groups of devices. Small groups have wide intervals.",
        ),
        fitting(
          h(
            "table",
            null,
            h("caption", { class: "unseen" }, "Gain over the own model in groups of devices"),
            head([["group", ""], ["devices", "n"], ...gainHead()]),
            kinds.map(each =>
              h(
                "tbody",
                null,
                h("tr", null, h("th", { scope: "rowgroup", colspan: 6 }, "by " + each)),
                worth.groups
                  .filter(group => group.kind === each)
                  .map(group =>
                    h(
                      "tr",
                      { "data-group": group.name, ...data(group) },
                      h("th", { scope: "row" }, group.name),
                      h("td", { class: "n" }, count(group.devices)),
                      cells(group),
                    ),
                  ),
              ),
            ),
          ),
        ),
      );
  }

  // ---- gain per device
  const gainKind = i => (missing(measured.gain[i]) ? "unknown" : KINDS[measured.says[i]] || "same");
  const tiny = i => Boolean(measured.small && measured.small[i]);
  const gainText = i =>
    missing(measured.gain[i])
      ? `${shown(ids[i])}\nnot measured`
      : tiny(i)
        ? `${shown(ids[i])}\nboth errors are small: own ${num(measured.own[i])}, personalized ${num(measured.personal[i])}`
        : `${shown(ids[i])}\ngain ${percent(measured.gain[i])} (${span(measured.low[i], measured.high[i])})`;
  const FEW = 60; // devices that each get a bar with its name
  function gains() {
    if (!measured) {
      put("gain-lead", "Nothing was kept back to judge by, so no gain was measured.");
      $("gain-figure").remove();
      return;
    }
    const order = ids
      .map((_, i) => i)
      .filter(i => !missing(measured.gain[i]))
      .sort((a, b) => measured.gain[b] - measured.gain[a]);
    const counts = { lower: 0, same: 0, unknown: 0 };
    for (let i = 0; i < n; i++) counts[gainKind(i)]++;
    const little = ids.some((_, i) => tiny(i)) ? ", or both errors are small" : "",
      meaning = { lower: "helps here", same: `not enough own rows to tell${little}`, unknown: "not measured" };
    put(
      "gain-lead",
      worth.expected
        ? "How much less error the personalized model is expected to make than the device's own when both learn from all rows, as far as the few rows held back tell. "
        : "How much less error the personalized model makes than the device's own, on the few rows the device held back. ",
      "Right of zero it makes less. One device's rows swing too much to say that it loses: a bar on the other side is no evidence of that.",
    );
    const box = h("div"),
      figure = $("gain-figure");
    figure.append(
      h(
        "ul",
        { class: "key" },
        Object.entries(counts)
          .filter(([, k]) => k)
          .map(([name, k]) =>
            h(
              "li",
              { "data-kind": name, "data-count": k },
              h("i", { class: name, "aria-hidden": "true" }),
              `${meaning[name]}: ${count(k)}`,
            ),
          ),
      ),
      box,
      h(
        "figcaption",
        null,
        order.length > FEW
          ? "How to read it: each bar is a range of gains, as high as there are devices in it. Choose a bar to see them in the table. "
          : "How to read it: the line through each value is its 95 % interval. ",
        "Blue are devices whose interval lies above zero, at most one in ten of them by luck, and whose similar devices, those with about as many rows, gained too. Values beyond the edge are drawn at the edge. The same numbers stand in the table.",
      ),
    );
    if (!order.length) return;
    const scale = gainScale(
      order.map(i => measured.low[i]).concat(order.map(i => measured.gain[i])),
      order.map(i => measured.high[i]).concat(order.map(i => measured.gain[i])),
    );
    const summary = `Gain of ${many(order.length, "device")}: ${meaning.lower} for ${counts.lower}, ${meaning.same} for ${counts.same}.`;
    if (order.length > FEW) {
      const tenth = Math.floor((order.length - 1) / 10),
        middle = median(order.map(i => measured.gain[i]));
      box.before(
        threeFacts("gain", [
          ["a tenth gains less than", measured.gain[order[order.length - 1 - tenth]]],
          ["half gains more than", middle],
          ["a tenth gains more than", measured.gain[order[tenth]]],
        ]),
      );
      chart(box, wide => gainSpread(order, scale, summary, wide));
    } else chart(box, wide => gainBars(order, scale, summary, wide));
  }
  const threeFacts = (name, facts) =>
    h(
      "dl",
      { class: "facts" },
      facts.map(([text, value]) => h("div", null, h("dt", null, text), h("dd", { [`data-${name}`]: value }, percent(value)))),
    );
  // Many devices: how many have which gain. A bar chooses its devices in the table.
  function gainSpread(order, scale, summary, wide) {
    const STEP = 0.05,
      first = Math.floor(scale.low / STEP - 1e-9),
      last = Math.ceil(scale.high / STEP + 1e-9),
      bins = Array.from({ length: last - first }, () => ({ lower: 0, same: 0, unknown: 0 }));
    const bin = value => Math.max(0, Math.min(bins.length - 1, Math.floor(value / STEP + 1e-9) - first));
    for (const i of order) bins[bin(measured.gain[i])][gainKind(i)]++;
    const size = each => each.lower + each.same + each.unknown,
      most = Math.max(...bins.map(size)),
      tall = 240,
      bottom = tall - 24,
      levels = ticks(0, most, 4).filter(Number.isInteger),
      left = widest(levels.map(count), wide / 4) + 8;
    const x = value => left + ((wide - left - 8) * (value / STEP - first)) / bins.length,
      y = many => 10 + (bottom - 10) * (1 - many / most);
    const svg = s("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "group", "aria-label": summary });
    for (const level of levels)
      svg.append(
        line(left, y(level), wide - 8, y(level), level ? "grid" : "zero"),
        s("text", { x: left - 8, y: y(level) + 4, "text-anchor": "end" }, count(level)),
      );
    const ends = { low: first * STEP, high: last * STEP };
    for (const value of marks(ends, wide < 520 ? 4 : 8, x, whole))
      svg.append(s("text", { x: within(x(value), whole(value), wide), y: tall - 4, "text-anchor": "middle" }, whole(value)));
    bins.forEach((each, k) => {
      if (!size(each)) return;
      const from = (first + k) * STEP,
        to = from + STEP,
        said = `gain ${whole(from)} to ${whole(to)}: ${many(size(each), "device")}`,
        box = { x: x(from) + 0.5, width: Math.max(1, x(to) - x(from) - 1) },
        show = () => onlyDevices(i => !missing(measured.gain[i]) && bin(measured.gain[i]) === k, said);
      let under = 0;
      for (const name of ["lower", "same", "unknown"]) {
        if (each[name])
          svg.append(
            s("rect", { ...box, y: y(under + each[name]), height: y(under) - y(under + each[name]), class: "bar-" + name }),
          );
        under += each[name];
      }
      svg.append(
        s("rect", {
          ...box,
          y: 10,
          height: bottom - 10,
          class: "hot",
          role: "button",
          tabindex: 0,
          "aria-label": said,
          "data-bin": k,
          "data-many": size(each),
          onpointermove: event => point(said, event.clientX, event.clientY),
          onpointerleave: unpoint,
          onclick: show,
          onkeydown: event => event.key === "Enter" && show(),
        }),
      );
    });
    svg.append(line(x(0), 4, x(0), bottom, "mark"));
    return svg;
  }
  function gainBars(order, scale, summary, wide) {
    const columns = order.length > 20 && (printing || wide >= 820) ? 2 : 1,
      gap = printing ? 20 : 48,
      each = (wide - gap * (columns - 1)) / columns,
      deep = Math.ceil(order.length / columns);
    const label = widest(
        order.map(i => shown(ids[i])),
        each < 420 ? 110 : 160,
      ),
      start = label + 22,
      step = printing ? 18 : 22,
      top = 22;
    const x = value =>
      start + ((each - start - 20) * (Math.min(scale.high, Math.max(scale.low, value)) - scale.low)) / (scale.high - scale.low);
    const svg = s("svg", {
      width: wide,
      height: top + deep * step + 4,
      viewBox: `0 0 ${wide} ${top + deep * step + 4}`,
      role: "img",
      "aria-label": summary,
    });
    for (let c = 0; c < columns; c++) {
      const mine = order.slice(c * deep, (c + 1) * deep),
        group = s("g", { transform: `translate(${c * (each + gap)} 0)` });
      for (const value of marks(scale, each < 520 ? 4 : 7, x, whole))
        group.append(
          line(x(value), top - 4, x(value), top + mine.length * step, Math.abs(value) < 1e-9 ? "zero" : "grid"),
          s("text", { x: within(x(value), whole(value), each), y: 11, "text-anchor": "middle" }, whole(value)),
        );
      mine.forEach((i, k) => {
        const y = top + k * step + step / 2,
          cls = gainKind(i),
          zero = x(0),
          value = x(measured.gain[i]);
        group.append(
          s("text", { x: label, y: y + 4, "text-anchor": "end", class: "name" }, fit(shown(ids[i]), label)),
          s("rect", {
            x: Math.min(zero, value),
            y: y - 6,
            width: Math.max(1, Math.abs(value - zero)),
            height: 12,
            class: `bar-${cls} bar-soft`,
          }),
        );
        if (!missing(measured.low[i]))
          group.append(
            s("line", {
              x1: x(measured.low[i]),
              x2: x(measured.high[i]),
              y1: y,
              y2: y,
              class: "pen-" + cls,
              "stroke-width": 1.75,
            }),
          );
        group.append(
          s("circle", { cx: value, cy: y, r: 3.5, class: "bar-" + cls, "data-bar": i, "data-gain": measured.gain[i] }),
          s("rect", {
            x: 0,
            y: y - step / 2,
            width: each,
            height: step,
            class: "hot",
            onpointermove: event => point(gainText(i), event.clientX, event.clientY),
            onpointerleave: unpoint,
            onclick: () => choose(i, true),
          }),
        );
      });
      svg.append(group);
    }
    return svg;
  }
  // Many sorted values: a picture to move along with the pointer or the arrow keys.
  function strip(box, it) {
    let at = 0,
      mark = () => {},
      hide = () => {};
    const k = it.order.length;
    Object.entries({
      role: "slider",
      tabindex: "0",
      "aria-label": it.summary + " Arrow keys move, Enter chooses.",
      "aria-valuemin": 1,
      "aria-valuemax": k,
    }).forEach(([name, value]) => box.setAttribute(name, value));
    box.classList.add("strip");
    const go = place => {
      at = Math.max(0, Math.min(k - 1, place));
      box.setAttribute("aria-valuenow", at + 1);
      box.setAttribute("aria-valuetext", it.text(it.order[at]).replace("\n", ", "));
      return mark(at);
    };
    const tall = it.tall || 260,
      bottom = 12,
      // what is counted has no halves
      levels = ticks(it.scale.low, it.scale.high, 5).filter(value => it.form !== count || Number.isInteger(value));
    const y = value =>
      bottom +
      ((tall - 2 * bottom) * (it.scale.high - Math.min(it.scale.high, Math.max(it.scale.low, value)))) /
        (it.scale.high - it.scale.low);
    let place = () => 0;
    chart(box, wide => {
      const left = widest(levels.map(it.form), wide / 3) + 8,
        step = (wide - left - 6) / k,
        x = r => left + (r + 0.5) * step,
        paths = {};
      place = clientX => Math.floor((clientX - box.getBoundingClientRect().left - left) / step);
      const svg = s("svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": it.summary });
      for (const value of levels)
        svg.append(
          line(left, y(value), wide - 6, y(value), Math.abs(value) < 1e-9 ? "zero" : "grid"),
          s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, it.form(value)),
        );
      it.order.forEach((i, r) => {
        const mine = paths[it.kind(i)] || "",
          X = x(r).toFixed(2);
        paths[it.kind(i)] = `${mine}M${X} ${y(0).toFixed(1)}V${Math.min(y(it.value(i)), y(0) - 0.5).toFixed(1)}`;
      });
      for (const [name, d] of Object.entries(paths))
        svg.append(s("path", { d, class: "pen-" + name, "stroke-width": Math.max(0.6, step > 3 ? step * 0.78 : step * 1.02) }));
      const cursor = s("g", { visibility: "hidden" }, line(0, 0, 0, tall, "cursor"), s("circle", { r: 4.5, class: "dot" }));
      svg.append(cursor);
      mark = r => {
        cursor.firstChild.setAttribute("transform", `translate(${x(r)} 0)`);
        cursor.lastChild.setAttribute("cx", x(r));
        cursor.lastChild.setAttribute("cy", y(it.value(it.order[r])));
        cursor.setAttribute("visibility", "visible");
        const edge = box.getBoundingClientRect();
        return [edge.left + x(r), edge.top + y(it.value(it.order[r]))];
      };
      hide = () => {
        cursor.setAttribute("visibility", "hidden");
        unpoint();
      };
      return svg;
    });
    go(0);
    hide();
    box.addEventListener("pointermove", event => {
      go(place(event.clientX));
      point(it.text(it.order[at]), event.clientX, event.clientY);
    });
    box.addEventListener("pointerleave", () => hide());
    box.addEventListener("blur", () => hide());
    box.addEventListener("click", event => {
      go(place(event.clientX));
      choose(it.order[at], true);
    });
    box.addEventListener("keydown", event => {
      const leap = Math.max(1, Math.round(k / 20));
      const to = {
        ArrowLeft: at - 1,
        ArrowDown: at - 1,
        ArrowRight: at + 1,
        ArrowUp: at + 1,
        PageDown: at - leap,
        PageUp: at + leap,
        Home: 0,
        End: k - 1,
      }[event.key];
      if (to !== undefined) point(it.text(it.order[Math.max(0, Math.min(k - 1, to))]), ...go(to));
      else if (event.key === "Enter") choose(it.order[at], true);
      else return;
      event.preventDefault();
    });
  }

  // ---- what a model is made of
  const parts = i => info.made_of.names.map((name, k) => `${percent(info.made_of.shares[i][k])} ${name}`).join(", ");
  const part = k => "part-" + (k === info.made_of.names.length - 1 ? 2 : k); // the others' part has one colour, blend or kin
  function makeup(i, wide, tall) {
    let at = 0;
    return s(
      "svg",
      {
        width: wide,
        height: tall,
        viewBox: `0 0 ${wide} ${tall}`,
        role: "img",
        "aria-label": parts(i),
        "data-made": info.made_of.shares[i].join(" "),
        class: "makeup",
        onpointermove: event => point(`${shown(ids[i])}\n${parts(i)}`, event.clientX, event.clientY),
        onpointerleave: unpoint,
      },
      info.made_of.shares[i].map((share, k) => {
        const x = at;
        at += wide * share;
        return share > 0 ? s("rect", { x, y: 0, width: wide * share, height: tall, class: part(k) }) : null;
      }),
    );
  }
  const makeupKey = i =>
    h(
      "ul",
      { class: "key" },
      info.made_of.names.map((name, k) =>
        h(
          "li",
          null,
          h("i", { class: part(k), "aria-hidden": "true" }),
          i === null ? name : `${percent(info.made_of.shares[i][k])} ${name}`,
        ),
      ),
    );
  function neighbours(i) {
    const near = info.made_of.near[i],
      whole = info.made_of.shares[i].at(-1),
      named = near.reduce((sum, [, share]) => sum + share, 0),
      what = info.made_of.names.at(-1);
    if (!near.length) return h("p", { class: "read" }, `No single device is as much as half a percent of it.`);
    return h(
      "p",
      { id: "near" },
      `Of it, ${what}: `,
      near.map(([peer, share], k) => [
        k ? ", " : null,
        h("span", { class: "near", "data-peer": ids[peer], "data-share": share }, link(peer, brief), `${SPACE}${percent(share)}`),
      ]),
      whole - named > 0.005 ? `, others ${percent(whole - named)}.` : ".",
    );
  }

  // ---- the table of devices, a page at a time
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const table = { by: measured ? "gain" : "id", down: Boolean(measured), page: 0, size: 25, order: [], name: "", only: null };
  const COLUMNS = [
    { key: "id", name: words.device, cls: "who", of: i => ids[i], cell: i => link(i) },
    ...(info.made_of
      ? [{ key: "made", name: "made of", cls: "drawn", of: i => info.made_of.shares[i].at(-1), cell: i => makeup(i, 96, 14) }]
      : []),
    { key: "rows", name: "rows", cls: "n", of: i => devices.rows[i], cell: i => count(devices.rows[i]) },
    ...(measured
      ? [
          { key: "own", name: "own error", cls: "n less", of: i => measured.own[i], cell: i => num(measured.own[i]) },
          {
            key: "personal",
            name: "personalized error",
            cls: "n less",
            of: i => measured.personal[i],
            cell: i => num(measured.personal[i]),
          },
          {
            key: "gain",
            name: "gain (95 %\u00a0interval)",
            cls: "n gain",
            of: i => measured.gain[i],
            cell: i =>
              tiny(i)
                ? h("small", null, "small errors")
                : [
                    percent(measured.gain[i]),
                    missing(measured.low[i]) ? null : h("small", null, span(measured.low[i], measured.high[i])),
                  ],
          },
          { key: "says", name: "verdict", cls: "told", of: i => measured.says[i], cell: i => told(measured.says[i]) },
        ]
      : []),
    ...(nobody
      ? []
      : [{ key: "answered", name: "answered", cls: "n", of: i => help.answered[i], cell: i => count(help.answered[i]) }]),
  ];
  function sortDevices() {
    const of = COLUMNS.find(column => column.key === table.by).of,
      way = table.down ? -1 : 1;
    const none = x => x === null || x === undefined;
    table.order = ids
      .map((_, i) => i)
      .filter(i => (!table.only || table.only(i)) && plain(ids[i]).toLowerCase().includes(table.name))
      .sort((a, b) => {
        const u = of(a),
          v = of(b);
        if (none(u) || none(v)) return none(u) - none(v) || a - b;
        return way * (typeof u === "string" ? compare(u, v) : u - v) || a - b;
      });
  }
  function devicePage() {
    const k = table.order.length,
      last = Math.max(0, Math.ceil(k / table.size) - 1),
      all = n <= 30;
    table.page = Math.max(0, Math.min(last, table.page));
    const from = all || printing ? 0 : table.page * table.size,
      to = printing ? Math.min(k, 200) : all ? k : Math.min(k, from + table.size);
    for (const th of document.querySelectorAll("#devices thead th")) {
      if (th.dataset.column === table.by) th.setAttribute("aria-sort", table.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    }
    $("device-rows").replaceChildren(
      ...table.order.slice(from, to).map(i =>
        h(
          "tr",
          {
            "data-device": ids[i],
            "data-index": i,
            "data-rows": devices.rows[i],
            "data-answered": help.answered[i],
            ...(measured
              ? {
                  "data-held": devices.held[i],
                  "data-own": measured.own[i],
                  "data-personal": measured.personal[i],
                  "data-gain": measured.gain[i],
                  "data-low": measured.low[i],
                  "data-high": measured.high[i],
                  "data-says": measured.says[i],
                }
              : {}),
            onclick: () => choose(i, true),
          },
          COLUMNS.map((column, k) => h(k ? "td" : "th", { scope: k ? null : "row", class: column.cls }, column.cell(i))),
        ),
      ),
    );
    $("device-span").textContent = k ? `${count(from + 1)} to ${count(to)} of ${count(k)}` : "No device is called so.";
    $("device-back").disabled = table.page === 0;
    $("device-on").disabled = table.page === last;
    $("device-printed").hidden = !(printing && to < k);
    settle();
  }
  function listDevices() {
    table.page = 0;
    sortDevices();
    devicePage();
  }
  // Those of a bar of the distribution alone, until somebody wants all of them again.
  function onlyDevices(wanted, said) {
    table.only = wanted;
    $("device-only").hidden = !wanted;
    $("device-only-said").textContent = said;
    listDevices();
    if (wanted) $("devices-title").scrollIntoView();
  }
  const finder = () =>
    h(
      "div",
      { class: "choose controls" },
      h("label", { for: "device-find" }, `Search (${words.device})`),
      h(
        "span",
        { class: "row" },
        h("input", {
          id: "device-find",
          type: "search",
          spellcheck: "false",
          oninput: event => {
            table.name = plain(event.target.value).toLowerCase();
            listDevices();
          },
        }),
      ),
      h(
        "p",
        { id: "device-only", hidden: true },
        h("span", { id: "device-only-said" }),
        ". ",
        h("button", { type: "button", class: "link", onclick: () => onlyDevices(null, "") }, "Show all"),
      ),
    );
  function deviceTable() {
    put(
      "devices-read",
      measured
        ? "A device's own few held-out rows swing from row to row, so they seldom carry a verdict; the mean over devices with about as many rows can, and stands beside it. "
        : null,
      info.made_of ? "The bar says what a model is made of. " : null,
      measured ? "Choose a name to see its errors and who helps it." : "Choose a name to see who helps it.",
    );
    if (info.made_of) $("devices-read").after(makeupKey(null));
    const sorter = column =>
      h(
        "button",
        {
          type: "button",
          onclick: () => {
            if (table.by === column.key) table.down = !table.down;
            else {
              table.by = column.key;
              table.down = column.key !== "id" && column.key !== "says";
            }
            listDevices();
          },
        },
        column.name,
      );
    const turn = by => () => {
      table.page += by;
      devicePage();
    };
    put(
      "devices",
      n > 30 ? finder() : null,
      fitting(
        h(
          "table",
          null,
          h("caption", { class: "unseen" }, "All devices; the column headings sort"),
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              COLUMNS.map(column =>
                h(
                  "th",
                  { scope: "col", class: column.cls, "data-column": column.key, "data-name": together(column.name) },
                  sorter(column),
                ),
              ),
            ),
          ),
          h("tbody", { id: "device-rows" }),
        ),
      ),
      h(
        "p",
        { id: "device-printed", class: "read", hidden: true },
        "Only the first 200 are printed; the file itself has all of them.",
      ),
      h(
        "div",
        { class: "pager", hidden: n <= 30 },
        h("button", { type: "button", id: "device-back", onclick: turn(-1) }, "Previous page"),
        h("span", { id: "device-span", role: "status" }),
        h("button", { type: "button", id: "device-on", onclick: turn(1) }, "Next page"),
      ),
    );
    if (n <= 30) $("devices").lastChild.style.display = "none";
    sortDevices();
    devicePage();
  }

  // ---- who helps whom
  function heat() {
    const { names, devices: stands, values, blocks } = help.matrix,
      k = names.length,
      several = stands.some(each => each.length > 1);
    const figure = $("heat"),
      never = (help.matrix.never || []).map(columns => new Set(columns)),
      unmet = (i, j) => Boolean(never[i] && never[i].has(j) && !(i === j && stands[i].length === 1)),
      untouched = never.some((columns, i) => [...columns].some(j => unmet(i, j)));
    if (!k || nobody) {
      put("whom-lead", "Nobody was asked: models were made without answers of single devices, so nobody helps anybody by name.");
      figure.remove();
      return;
    }
    if (!values.some(row => row.some(x => x > 0))) {
      put("whom-lead", "No device took anything of what a single other one answered. ", h("strong", { id: "kinds" }, help.said));
      figure.remove();
      return;
    }
    put(
      "whom-lead",
      "Each row is a device that asks, each column a device that answers. The stronger its colour, the more of ",
      blended ? "what the row took from neighbours" : "the row's adopted steps",
      " came from the column. ",
      several ? "There are many devices, so each cell stands for several devices. " : null,
      blocks.length > 2
        ? "Devices with the same helpers stand together; lines separate such blocks. "
        : help.kinds
          ? "Devices with the same helpers stand together. "
          : "Devices stand in the order of the table. ",
      untouched ? "Hatched pairs never met: nothing is known of them. " : null,
      h("strong", { id: "kinds" }, help.said),
    );
    const most = Math.max(1e-12, ...values.map(row => Math.max(...row.map(x => x || 0))));
    const label = i => (stands[i].length > 1 ? `${names[i]} (${stands[i].length} devices)` : shown(names[i]));
    const alone = i => stands[i].length === 1;
    const text = (i, j) =>
      i === j && alone(i)
        ? `${label(i)}\na device does not ask itself`
        : unmet(i, j)
          ? `${label(i)} never met ${label(j)}`
          : `${label(i)} asked ${label(j)}\n${percent(values[i][j])} of ${steps}`;
    const inside = [];
    for (let b = 0; b + 1 < blocks.length; b++) {
      let weight = 0,
        sum = 0,
        size = 0;
      const members = [];
      for (let i = blocks[b]; i < blocks[b + 1]; i++) {
        size += stands[i].length;
        members.push(...stands[i]);
        if (values[i].some(x => x > 0)) {
          weight += stands[i].length;
          sum += stands[i].length * values[i].slice(blocks[b], blocks[b + 1]).reduce((u, v) => u + (v || 0), 0);
        }
      }
      inside.push({ name: `block ${b + 1}`, size, members, share: weight ? sum / weight : null });
    }
    const canvas = h("canvas", {
      tabindex: "0",
      role: "application",
      "aria-roledescription": "heat map",
      "aria-describedby": "heat-read",
      "aria-label": `Heat map of who helps whom, ${k} by ${k}. Arrow keys move from cell to cell, Enter chooses the device of the row.`,
    });
    const cell = h("div", { hidden: true }),
      map = h("div", { class: "map" }, canvas, cell);
    const hint = h("p", { class: "hint", hidden: true }, "The map is wider than this window: scroll it sideways \u2192"),
      holder = h("div", { class: "scroll", role: "region", "aria-label": "Heat map" }, map),
      legend = h("div", { class: "legend" });
    figure.append(
      legend,
      hint,
      holder,
      h(
        "figcaption",
        { id: "heat-read" },
        "How to read it: pick a row and look along it. Strongly coloured cells are the peers that the row took most from. Taking much is no proof of help; the table of one device below says where it is. Choose a row to see it there.",
      ),
    );
    legend.append(
      h("span", null, blended ? "share of what the row took from neighbours" : "share of the row's adopted steps"),
      s(
        "svg",
        { width: 260, height: 34, viewBox: "0 0 260 34", role: "img", "aria-label": `Colours from 0 to ${percent(most)}` },
        s(
          "defs",
          null,
          s(
            "linearGradient",
            { id: "heat-scale" },
            [0, 1, 2, 3, 4].map(c => s("stop", { offset: c / 4, class: "h" + c })),
          ),
        ),
        s("rect", { x: 0.5, y: 3.5, width: 259, height: 12, fill: "url(#heat-scale)" }),
        s("rect", { x: 0.5, y: 3.5, width: 259, height: 12, class: "frame" }),
        [0, 0.5, 1].map(t =>
          s(
            "text",
            { x: 260 * t, y: 30, "text-anchor": t === 0 ? "start" : t === 1 ? "end" : "middle" },
            t ? percent(most * t * t) : "0",
          ),
        ),
      ),
    );
    let size = 1,
      startX = 0,
      startY = 0;
    chart(map, wide => {
      const labelled = k <= 60,
        room = labelled ? widest(names.map(shown), wide < 560 ? 76 : 128, 11) + 8 : 0,
        title = 18;
      size = labelled
        ? Math.max(printing ? 6 : 9, Math.min(44, (Math.min(wide, 820) - room - title - 2) / k))
        : Math.min(wide - title - 2, 720) / k;
      startX = startY = room + title;
      const side = size * k,
        all = Math.ceil(startX + side + 2),
        scale = printing ? 3 : Math.max(1, devicePixelRatio || 1),
        style = getComputedStyle(document.documentElement),
        family = getComputedStyle(document.body).fontFamily,
        tall = Math.min(11, size);
      const colour = name => style.getPropertyValue(name).trim();
      canvas.width = Math.round(all * scale);
      canvas.height = Math.round(all * scale);
      canvas.style.width = all + "px";
      canvas.style.height = all + "px";
      const c = canvas.getContext("2d"),
        edge = r => Math.round((startX + r * size) * scale) / scale;
      const stops = [0, 1, 2, 3, 4].map(r => colour("--h" + r)).map(hex => [1, 3, 5].map(r => parseInt(hex.slice(r, r + 2), 16)));
      const shade = share => {
        const t = 4 * Math.sqrt(Math.max(0, Math.min(1, (share || 0) / most))),
          r = Math.min(3, Math.floor(t));
        return `rgb(${stops[r].map((u, q) => Math.round(u + (t - r) * (stops[r + 1][q] - u))).join()})`;
      };
      c.scale(scale, scale);
      c.clearRect(0, 0, all, all);
      const gap = size >= 10 ? 1 : 0,
        stripe = document.createElement("canvas");
      stripe.width = stripe.height = 6;
      const ink = stripe.getContext("2d");
      ink.strokeStyle = colour("--edge");
      for (const shift of [-6, 0, 6]) {
        ink.moveTo(shift, 6);
        ink.lineTo(shift + 6, 0);
      }
      ink.stroke();
      const hatched = c.createPattern(stripe, "repeat");
      for (let i = 0; i < k; i++)
        for (let j = 0; j < k; j++) {
          c.fillStyle = unmet(i, j) ? hatched : shade(values[i][j]);
          c.fillRect(edge(j), edge(i), edge(j + 1) - edge(j) - gap, edge(i + 1) - edge(i) - gap);
        }
      c.fillStyle = colour("--ink");
      for (const b of blocks.slice(1, -1)) {
        c.fillRect(edge(b) - (gap ? 1.25 : 0.5), edge(0), gap ? 1.5 : 1, edge(k) - edge(0));
        c.fillRect(edge(0), edge(b) - (gap ? 1.25 : 0.5), edge(k) - edge(0), gap ? 1.5 : 1);
      }
      c.strokeStyle = colour("--edge");
      c.strokeRect(edge(0) - 0.5, edge(0) - 0.5, edge(k) - edge(0) + 1, edge(k) - edge(0) + 1);
      c.font = `${tall}px ${family}`;
      c.textBaseline = "middle";
      if (labelled)
        for (let i = 0; i < k; i++) {
          const name = fit(shown(names[i]), room - 8, tall),
            middle = (edge(i) + edge(i + 1) - gap) / 2;
          c.textAlign = "right";
          c.fillText(name, startX - 6, middle);
          c.save();
          c.translate(middle, startY - 6);
          c.rotate(-Math.PI / 2);
          c.textAlign = "left";
          c.fillText(name, 0, 0);
          c.restore();
        }
      c.fillStyle = colour("--quiet");
      c.textAlign = "left";
      c.font = `12px ${family}`;
      c.fillText("peer that answers \u2192", labelled && side < 130 ? 22 : startX, 8);
      c.save();
      c.translate(8, startY + Math.min(side, side < 130 ? all - startY : side));
      c.rotate(-Math.PI / 2);
      c.textAlign = side < 130 ? "left" : "right";
      c.fillText("\u2190 device that asks", side < 130 ? 0 : side, 0);
      c.restore();
      return [canvas, cell];
    });
    const at = { i: 0, j: Math.min(1, k - 1) };
    const show = (i, j) => {
      cell.hidden = false;
      cell.style.left = startX + j * size - 2 + "px";
      cell.style.top = startY + i * size - 2 + "px";
      cell.style.width = cell.style.height = size + 3 + "px";
    };
    const under = event => {
      const box = canvas.getBoundingClientRect(),
        j = Math.floor((event.clientX - box.left - startX) / size),
        i = Math.floor((event.clientY - box.top - startY) / size);
      return i >= 0 && i < k && j < k && event.clientX >= box.left ? [i, j] : null;
    };
    canvas.addEventListener("pointermove", event => {
      const found = under(event);
      if (!found || found[1] < 0) {
        cell.hidden = true;
        unpoint();
        return;
      }
      show(...found);
      point(text(...found), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", () => {
      cell.hidden = true;
      unpoint();
    });
    canvas.addEventListener("click", event => {
      const found = under(event);
      if (found) choose(stands[found[0]][0], true);
    });
    const announce = () => {
      show(at.i, at.j);
      const box = canvas.getBoundingClientRect();
      canvas.dataset.row = at.i;
      canvas.dataset.column = at.j;
      point(text(at.i, at.j), box.left + startX + (at.j + 1) * size, box.top + startY + at.i * size);
      say(
        at.i === at.j && alone(at.i)
          ? `Target ${label(at.i)}: a device does not ask itself.`
          : `Target ${label(at.i)}, peer ${label(at.j)}: ${percent(values[at.i][at.j])} of ${steps}.`,
      );
    };
    canvas.addEventListener("focus", () => {
      if (canvas.matches(":focus-visible")) announce();
    });
    canvas.addEventListener("blur", () => {
      cell.hidden = true;
      unpoint();
    });
    canvas.addEventListener("keydown", event => {
      const move = {
        ArrowUp: [-1, 0],
        ArrowDown: [1, 0],
        ArrowLeft: [0, -1],
        ArrowRight: [0, 1],
        Home: [0, -k],
        End: [0, k],
        PageUp: [-k, 0],
        PageDown: [k, 0],
      }[event.key];
      if (move) {
        at.i = Math.max(0, Math.min(k - 1, at.i + move[0]));
        at.j = Math.max(0, Math.min(k - 1, at.j + move[1]));
        announce();
      } else if (event.key === "Enter" || event.key === " ") choose(stands[at.i][0], true);
      else return;
      event.preventDefault();
    });
    const largest = inside
      .map((_, b) => b)
      .sort((a, b) => inside[b].size - inside[a].size)
      .slice(0, 12)
      .sort((a, b) => a - b)
      .map(b => inside[b]);
    const few = members =>
      members
        .slice(0, 8)
        .map(i => brief(ids[i]))
        .join(", ") + (members.length > 8 ? ` and ${count(members.length - 8)} more` : "");
    if (largest.length > 1)
      put(
        "blocks",
        h("h3", null, "The blocks"),
        h(
          "p",
          { class: "read" },
          "How much of what its devices adopted came from inside the block. Near 100 % the block keeps to itself.",
          inside.length > 12 ? ` The 12 largest of ${count(inside.length)} blocks.` : "",
        ),
        fitting(
          h(
            "table",
            null,
            h("caption", { class: "unseen" }, "Blocks of devices that help each other"),
            head([
              ["block", ""],
              ["devices", "n"],
              ["from inside", "n"],
              ["who", ""],
            ]),
            h(
              "tbody",
              null,
              largest.map(block =>
                h(
                  "tr",
                  { "data-block": block.name, "data-inside": block.share },
                  h("th", { scope: "row", class: "t" }, block.name),
                  h("td", { class: "n" }, count(block.size)),
                  h("td", { class: "n" }, percent(block.share)),
                  h("td", { class: "members" }, few(block.members)),
                ),
              ),
            ),
          ),
        ),
      );
  }

  // ---- loss
  function curves(device, wide, box) {
    const { rounds, fleet } = loss,
      mine = device === null ? null : loss.device[device];
    const lows = fleet.low.concat(mine || []).filter(x => !missing(x)),
      highs = fleet.high.concat(mine || []).filter(x => !missing(x));
    if (!lows.length || !rounds.length) return h("p", null, "No loss was recorded.");
    const top = Math.max(...highs),
      positive = lows.concat(highs).filter(x => x > 0),
      least = positive.length ? Math.min(...positive) : 0,
      lowest = Math.min(...lows);
    const log = least > 0 && top / least > 100 && lowest >= 0;
    const floor = log ? least : Math.min(0, lowest),
      f = log ? value => Math.log10(Math.max(value, floor)) : value => value;
    const left = 62,
      tall = 280,
      foot = 40,
      f0 = f(floor),
      f1 = f(top) > f0 ? f(top) : f0 + 1,
      last = rounds[rounds.length - 1],
      first = rounds[0];
    const x = value => left + ((wide - left - 14) * (value - first)) / (last - first || 1),
      y = value => 10 + ((tall - foot - 10) * (f1 - f(value))) / (f1 - f0);
    const points = values =>
      values.map((value, k) => (missing(value) ? null : `${x(rounds[k]).toFixed(1)} ${y(value).toFixed(1)}`));
    const path = values => {
      let up = true;
      return points(values)
        .map(at => {
          const part = at === null ? "" : (up ? "M" : "L") + at;
          up = at === null;
          return part;
        })
        .join("");
    };
    const end = values => {
      const there = values.filter(value => !missing(value));
      return num(there[there.length - 1]);
    };
    const name = device === null ? "the fleet" : shown(ids[device]);
    const svg = s("svg", {
      width: wide,
      height: tall,
      viewBox: `0 0 ${wide} ${tall}`,
      role: "img",
      "aria-label":
        `${loss.name} over rounds ${first} to ${last}${log ? ", logarithmic scale" : ""}: the median device ends at ${end(fleet.median)}` +
        (mine
          ? `, ${name} goes from ${num(mine[0])} to ${end(mine)}.`
          : `, the middle 80 % at ${end(fleet.low)} to ${end(fleet.high)}.`),
    });
    const decades = []; // a short logarithmic axis needs 2 and 5 between the powers of ten, a long one not even all powers
    for (let d = Math.floor(f0); d <= f1; d++) decades.push(...(f1 - f0 < 2.5 ? [1, 2, 5] : [1]).map(u => u * 10 ** d));
    const fewer = Math.ceil(decades.length / 9),
      levels = log ? decades.filter((value, r) => r % fewer === 0 && value >= floor && value <= top) : ticks(f0, f1, 5);
    for (const value of levels)
      svg.append(
        line(left, y(value), wide - 14, y(value), "grid"),
        s(
          "text",
          { x: left - 8, y: y(value) + 4, "text-anchor": "end" },
          log
            ? value >= 1e-3 && value < 1e4
              ? String(+value.toPrecision(3))
              : value.toExponential(0).replace("e+", "e").replace("-", MINUS)
            : num(+value.toPrecision(6))
                .replace(/(\.\d*?)0+$/, "$1")
                .replace(/\.$/, ""),
        ),
      );
    for (const value of marks({ low: first, high: last }, wide < 500 ? 4 : 8, x, count).filter(Number.isInteger))
      svg.append(
        s("text", { x: within(x(value), count(value), wide), y: tall - foot + 18, "text-anchor": "middle" }, count(value)),
      );
    svg.append(s("text", { x: wide - 14, y: tall - 4, "text-anchor": "end" }, "round"));
    const up = points(fleet.high).filter(Boolean),
      down = points(fleet.low).filter(Boolean).reverse();
    svg.append(
      s("path", { d: `M${up.concat(down).join("L")}Z`, class: "band" }),
      line(left, tall - foot, wide - 14, tall - foot, "zero"),
      s("path", { d: path(fleet.median), class: "median" }),
    );
    if (mine) svg.append(s("path", { d: path(mine), class: "chosen" }));
    box.setAttribute("data-scale", log ? "log" : "linear");
    return svg;
  }
  const lossKey = device =>
    h(
      "ul",
      { class: "key" },
      device === null ? null : h("li", null, h("i", { class: "line chosen", "aria-hidden": "true" }), brief(ids[device])),
      h("li", null, h("i", { class: "line dashed median", "aria-hidden": "true" }), "median device"),
      h("li", null, h("i", { class: "band", "aria-hidden": "true" }), "from 10 % to 90 % of devices"),
    );
  // one round is no course: blend of linear models has a single one
  const course = loss.rounds.length > 1;
  function fleetLoss() {
    if (!course) {
      $("loss").remove();
      document.querySelector('#contents a[href="#loss"]').remove();
      return;
    }
    const box = h("div");
    $("loss-figure").append(
      lossKey(null),
      box,
      h(
        "figcaption",
        null,
        "How to read it: half of all devices lie below the dashed line, and eight of ten inside the band. It should fall and then level off. This is the loss on rows a device learns from" +
          (worth ? "; whether new rows are predicted better is said by the gains above." : ", which says little about new rows."),
      ),
    );
    chart(box, wide => curves(null, wide, box));
    const logarithmic = box.dataset.scale === "log" ? ", on a logarithmic scale" : "";
    put("loss-lead", `How the ${loss.name} went down, round after round${logarithmic}.`);
  }

  // ---- does a model depend on those named, and whom do the others miss
  function risen(rows, title, first) {
    const scale = gainScale(
      rows.map(row => row.low),
      rows.map(row => row.high),
    );
    return fitting(
      h(
        "table",
        null,
        h("caption", { class: "unseen" }, title),
        head([
          [first, ""],
          ["errors rise by", "n"],
          ["95 % interval", "t"],
          ["", "drawn"],
        ]),
        h(
          "tbody",
          null,
          rows.map(row =>
            h(
              "tr",
              { "data-rise": row.value, "data-low": row.low, "data-high": row.high },
              h("th", { scope: "row" }, row.name),
              h("td", { class: "n" }, percent(row.value)),
              h("td", { class: "t" }, span(row.low, row.high)),
              h("td", { class: "drawn" }, whisker(row, scale, 180, row.cls || kind(row.low, row.high))),
            ),
          ),
        ),
      ),
    );
  }
  function depends() {
    const found = info.depends,
      missed = info.missed,
      rise = (name, [value, low, high]) => ({ name, value, low, high });
    if (!found && !missed) {
      put(
        "depends-lead",
        nobody
          ? "Nobody was asked, so nobody can be missed."
          : "Whether models depend on the devices that seem most like them was not measured in this run. persfl helpers RUN --prove --table TABLE measures it.",
      );
      return;
    }
    put(
      "depends-lead",
      found
        ? [
            h("strong", { id: "depends-said" }, found.sentence),
            ` The fleet was fitted ${many(found.refits, "time")} without trees, each time without the devices that seem most like one device.`,
          ]
        : null,
    );
    if (found)
      put(
        "depends-table",
        risen(
          [
            rise(`without the ${count(found.many)} most alike`, found.named),
            rise(`without ${count(found.many)} random ones`, found.random),
          ],
          "What errors rise by without some devices",
          "fleet",
        ),
      );
    if (missed)
      put(
        "missed",
        h("h3", null, "Who helps the others most"),
        h("p", { class: "read" }, missed.sentence),
        risen(
          missed.devices.map((name, k) => ({
            ...rise(shown(name), [missed.rise[k], missed.low[k], missed.high[k]]),
            cls: missed.missed[k] ? "lower" : "same",
          })),
          "What the others' errors rise by without a device",
          "without",
        ),
      );
  }

  // ---- who was asked
  function questions() {
    if (nobody) {
      put("questions-lead", "Nobody was asked.");
      $("questions-figure").remove();
      return;
    }
    const answered = help.answered,
      order = ids.map((_, i) => i).sort((a, b) => answered[b] - answered[a]);
    const least = answered[order[n - 1]],
      most = answered[order[0]],
      middle = median(answered);
    put(
      "questions-lead",
      "Every device also answers when others ask it: each answer is computed from its rows. An even load is fair; a steep one means that few devices carry the others.",
    );
    const box = h("div");
    $("questions-figure").append(
      h(
        "dl",
        { class: "facts" },
        [
          ["fewest", least, "least"],
          ["median", middle, "median"],
          ["most", most, "most"],
        ].map(([name, value, key]) =>
          h("div", null, h("dt", null, name), h("dd", { "data-answered": key, "data-value": value }, count(value))),
        ),
      ),
      box,
      h(
        "figcaption",
        null,
        "How to read it: one bar per device, sorted by how many questions it answered. The number of each stands in the table of all devices.",
      ),
    );
    strip(box, {
      order,
      scale: { low: 0, high: most || 1 },
      summary: `Questions answered by ${many(n, "device")}: from ${count(least)} to ${count(most)}, median ${count(middle)}.`,
      form: count,
      text: i => `${shown(ids[i])}\nanswered ${many(answered[i], "question")}`,
      value: i => answered[i],
      kind: () => "lower",
      tall: 180,
    });
  }

  // ---- one device
  const plain = text => String(text).replace(/\s+/g, " ").trim();
  const place = new Map(ids.map((id, i) => [plain(id), i]).reverse());
  function find(name) {
    const wanted = plain(name);
    if (place.has(wanted)) return { index: place.get(wanted) };
    if (!wanted) return { problem: `Type the name of one of the ${count(n)} devices.` };
    const lower = wanted.toLowerCase(),
      same = [],
      part = [];
    ids.forEach((id, i) => {
      const text = plain(id).toLowerCase();
      if (text === lower) same.push(i);
      else if (text.includes(lower)) part.push(i);
    });
    if (same.length === 1) return { index: same[0] };
    const short = wanted.length > 80 ? wanted.slice(0, 80) + "\u2026" : wanted;
    return {
      problem:
        `No ${words.device} is called \u201c${short}\u201d.` +
        (part.length
          ? ` ${part.length === 1 ? "One name contains it" : count(part.length) + " names contain it"}: ${part
              .slice(0, 5)
              .map(i => shown(ids[i]).slice(0, 80))
              .join(", ")}${part.length > 5 ? " \u2026" : ""}.`
          : ""),
    };
  }
  function choose(index, go) {
    chosen.index = index;
    $("name").value = ids[index];
    $("name-problem").textContent = "";
    $("name").removeAttribute("aria-invalid");
    try {
      history.replaceState(null, "", "#device=" + encodeURIComponent(ids[index]));
    } catch {
      /* a lone surrogate, or a frame without history: the page works without */
    }
    showDevice();
    unpoint();
    if (go) {
      $("one").scrollIntoView();
      $("device-name").focus({ preventScroll: true });
    }
  }
  function showDevice() {
    const i = chosen.index,
      top = help.top[i] || [];
    const fact = (name, value, more) =>
      h("div", null, h("dt", null, name), h("dd", null, value, more ? h("small", null, more) : null));
    const facts = [fact("rows", count(devices.rows[i]))];
    if (measured)
      facts.push(
        fact("held-out rows", count(devices.held[i])),
        fact("own error", num(measured.own[i])),
        fact("personalized error", num(measured.personal[i])),
        tiny(i)
          ? fact("gain", "small errors", "both are below a tenth of the fleet's")
          : fact("gain", percent(measured.gain[i]), missing(measured.low[i]) ? null : span(measured.low[i], measured.high[i])),
      );
    const answers = [
      ["worth", "Was it worth it?", measured && measured.says[i] ? told(measured.says[i]) : "Nothing was measured on this device alone."],
      ["like", "Who is like it?", likeIt(i)],
      ["depends", "Does its model depend on them?", dependence()],
    ];
    const made = info.made_of
      ? [
          h("h4", null, "What its model is made of"),
          makeupKey(i),
          h("figure", { class: "makeup-figure" }, makeup(i, 440, 26)),
          neighbours(i),
        ]
      : null;
    const lossBox = h("div"),
      name = shown(ids[i]);
    put(
      "device",
      h("h3", { id: "device-name", tabindex: "-1", "data-index": i, "data-device": ids[i] }, name),
      h("dl", { class: "facts" }, facts),
      h(
        "dl",
        { class: "answers told" },
        answers.map(([key, asked, said]) => h("div", null, h("dt", null, asked), h("dd", { "data-answer": key }, said))),
      ),
      made,
      h("h4", null, "Its peers"),
      helpers(i, top),
      course
        ? [
            h("h4", null, "Its loss"),
            lossKey(i),
            h("figure", null, lossBox, h("figcaption", null, `This device over the band of all devices: the ${loss.name}.`)),
          ]
        : null,
    );
    charts.splice(0, charts.length, ...charts.filter(again => !again.ofDevice));
    if (course) {
      chart(lossBox, wide => curves(i, wide, lossBox));
      charts[charts.length - 1].ofDevice = true;
    }
    settle();
  }
  // Nobody is named where there are no kinds: then all devices are alike, or it cannot be told.
  function likeIt(i) {
    const [like, ...first] = help.like[i];
    if (nobody) return "It asked nobody, so nobody could be found.";
    if (!help.kinds) return help.said;
    if (!like) return "Nobody of whom it can be told.";
    const more = like - first.length;
    return [
      first.map((peer, k) => [k ? ", " : "", link(peer)]),
      more ? ` and ${count(more)} more` : "",
      first.length + more > 1 ? ": of these at most one in ten is expected not to be." : ".",
    ];
  }
  function dependence() {
    if (info.depends) return info.depends.device;
    return nobody ? "It asked nobody." : "Not measured: persfl helpers RUN --prove --table TABLE does.";
  }
  function helpers(i, top) {
    if (!top.length)
      return h("p", null, help.met[i] ? "None of the peers it asked is listed." : "It asked nobody, so nobody could help it.");
    const rows = top.map(([peer, asked, adopted, share, reward, low, high, code, alike]) => ({
      peer,
      asked,
      adopted,
      share,
      reward,
      low,
      high,
      code,
      alike,
    }));
    const full = rows.find(row => row.share > 0 && row.adopted > 0),
      total = full ? full.adopted / full.share : null;
    const chance = row => (total ? (row.asked * help.chance) / total : null);
    const most = Math.max(1e-12, ...rows.map(row => Math.max(row.share || 0, chance(row) || 0)));
    const ends = rows.flatMap(row => [row.low, row.high, row.reward]).filter(x => !missing(x)),
      scale = { low: Math.min(0, ...ends), high: Math.max(0, ...ends) };
    if (scale.high === scale.low) scale.high += 1;
    const wide = 110,
      tick = row => Math.max(1, Math.min(wide - 1, (wide * chance(row)) / most)),
      bar = row =>
        s(
          "svg",
          { width: wide, height: 18, viewBox: `0 0 ${wide} 18`, "aria-hidden": "true" },
          s("rect", {
            x: 0,
            y: 3,
            width: Math.max(row.share > 0 ? 1 : 0, (wide * (row.share || 0)) / most - 1),
            height: 12,
            class: "bar-lower",
          }),
          missing(chance(row)) ? null : ["halo", "mark"].map(name => line(tick(row), 0, tick(row), 18, name)),
        );
    return [
      h(
        "p",
        { class: "read" },
        `It asked ${many(help.met[i], "different peer")}` +
          (rows.length < help.met[i] ? `; these ${count(rows.length)} were adopted most.` : ".") +
          ` The bar is the share of ${blended ? "what it took from neighbours" : "its adopted steps"} that came from a peer. The tick is where the bar would end by chance, if each question were adopted ${percent(help.chance)} of the time. The reward is how much an answer lowered this device's own loss, on average, with its interval: right of the line it went down. `,
        h("strong", null, "Like me?"),
        " is the chance that the two devices are of one kind, and the verdict follows from it: of those that help, at most one in ten is expected not to be. Whether models depend on them is another question: ",
        "it is answered above.",
      ),
      fitting(
        h(
          "table",
          { id: "helpers" },
          h("caption", { class: "unseen" }, "Peers ranked by share of adopted steps"),
          head([
            ["peer", ""],
            ["like me?", "n"],
            [blended ? "share of neighbours" : "share of steps", ""],
            ["reward per question", ""],
            ["mean (interval)", "n gain"],
            ["asked", "n"],
            ["adopted", "n"],
            ["verdict", ""],
          ]),
          h(
            "tbody",
            null,
            rows.map(row =>
              h(
                "tr",
                {
                  "data-peer": ids[row.peer],
                  "data-asked": row.asked,
                  "data-adopted": row.adopted,
                  "data-share": row.share,
                  "data-reward": row.reward,
                  "data-low": row.low,
                  "data-high": row.high,
                  "data-verdict": row.code,
                  "data-alike": row.alike,
                },
                h("th", { scope: "row", class: "who" }, link(row.peer)),
                h("td", { class: "n", title: "chance that this device is like the one that asks" }, percent(row.alike)),
                h(
                  "td",
                  { class: "drawn", title: missing(chance(row)) ? null : "by chance: " + percent(chance(row)) },
                  h("span", { class: "share" }, bar(row), h("span", null, percent(row.share))),
                ),
                h(
                  "td",
                  { class: "drawn" },
                  whisker({ value: row.reward, low: row.low, high: row.high }, scale, wide, row.code === 0 ? "lower" : "same"),
                ),
                h(
                  "td",
                  { class: "n gain" },
                  num(row.reward),
                  missing(row.low) || missing(row.high) ? null : h("small", null, `${num(row.low)} to ${num(row.high)}`),
                ),
                h("td", { class: "n" }, count(row.asked)),
                h("td", { class: "n" }, taken(row.adopted)),
                h("td", { class: "t" }, tag(help.verdicts[row.code])),
              ),
            ),
          ),
        ),
      ),
    ];
  }
  function chooser() {
    $("name-label").textContent = `Name (${words.device})`;
    put(
      "names",
      ids.map(id => h("option", { value: id })),
    );
    const input = $("name"),
      take = (found, go) => {
        if (found.index !== undefined) choose(found.index, go);
        else {
          $("name-problem").textContent = found.problem;
          input.setAttribute("aria-invalid", "true");
        }
      };
    $("choose").addEventListener("submit", event => {
      event.preventDefault();
      take(find(input.value), false);
    });
    input.addEventListener("focus", () => input.select());
    input.addEventListener("input", event => {
      if ((!event.inputType || event.inputType === "insertReplacementText") && place.has(plain(input.value)))
        take(find(input.value), false);
    });
    $("previous").addEventListener("click", () => choose((chosen.index + n - 1) % n, false));
    $("next").addEventListener("click", () => choose((chosen.index + 1) % n, false));
    const fromHash = () => {
      const found = /^#device=(.*)$/.exec(location.hash);
      if (!found) return false;
      let name = found[1];
      try {
        name = decodeURIComponent(name);
      } catch {
        /* as it is typed */
      }
      const index = ids.indexOf(name);
      take(index >= 0 ? { index } : find(name), true);
      if (index < 0) $("one").scrollIntoView();
      return true;
    };
    addEventListener("hashchange", fromHash);
    $("name").value = ids[0];
    showDevice();
    fromHash();
  }

  function rest() {
    put(
      "settings-table",
      fitting(
        h(
          "table",
          null,
          h("caption", { class: "unseen" }, "Settings of this run"),
          head([
            ["name", ""],
            ["value", ""],
            ["meaning", ""],
          ]),
          h(
            "tbody",
            null,
            info.settings.map(([name, value, meaning]) =>
              h(
                "tr",
                { "data-setting": name },
                h("th", { scope: "row" }, name),
                h("td", { class: "value" }, String(value)),
                h("td", { class: "meaning" }, meaning),
              ),
            ),
          ),
        ),
      ),
    );
    put(
      "privacy-list",
      info.privacy.map(text => h("li", null, text)),
    );
  }

  // ---- what answers give away, where somebody measured it
  function leaks() {
    const found = info.leaks,
      title = h("h3", null, "What answers give away");
    if (!found) {
      if (info.leaks_by)
        put(
          "leaks",
          title,
          h("p", null, "Not measured yet. This command attacks the rows at home, without protection and with it:"),
          h("pre", null, h("code", null, info.leaks_by)),
        );
      return;
    }
    const columns = [
      ["rows found", "found"],
      ["worst row", "worst"],
      ["by losses of a model of own rows", "by_model"],
      ["devices whose sums are known", "known"],
      ["labels alone in a leaf", "labels"],
    ].filter(([, key]) => found.budgets.some(one => !missing(one[key])));
    put(
      "leaks",
      title,
      h(
        "p",
        { class: "read" },
        "Measured by attacks on own rows, at home. Rows found: by whoever knows all other rows and sees what devices tell, at 1 % false alarms. ",
        `Epsilon is the privacy budget of a row (delta ${num(found.delta)}); the smaller, the more noise.`,
      ),
      fitting(
        h(
          "table",
          null,
          h("caption", { class: "unseen" }, "What answers give away, by privacy budget"),
          head([["epsilon", ""], ...columns.map(([name]) => [name, "n"])]),
          h(
            "tbody",
            null,
            found.budgets.map(one =>
              h(
                "tr",
                { "data-epsilon": one.epsilon, "data-found": one.found },
                h("th", { scope: "row" }, one.epsilon ? num(one.epsilon) : "no protection"),
                columns.map(([, key]) => h("td", { class: "n" }, percent(one[key]))),
              ),
            ),
          ),
        ),
      ),
    );
  }

  // The part of the page that is read is marked in its table of contents.
  function contents() {
    const links = new Map([...document.querySelectorAll("nav a")].map(each => [each.hash.slice(1), each]));
    const mark = parts => {
      for (const part of parts.filter(each => each.isIntersecting))
        links.forEach((each, id) => each.toggleAttribute("aria-current", id === part.target.id));
    };
    const watch = new IntersectionObserver(mark, { rootMargin: "-20% 0px -75% 0px" });
    document.querySelectorAll("main > section").forEach(each => watch.observe(each));
    // The way back covers what lies below it, and is of no use where the contents are in sight.
    const back = document.querySelector(".back");
    new IntersectionObserver(([seen]) => (back.hidden = seen.isIntersecting)).observe($("contents"));
  }

  drawn = $("main").clientWidth;
  answer();
  gains();
  deviceTable();
  heat();
  depends();
  fleetLoss();
  questions();
  rest();
  leaks();
  chooser();
  contents();
  document.documentElement.dataset.ready = "yes";
})();
