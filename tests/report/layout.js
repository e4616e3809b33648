// What is wrong with the layout of a page in a window of this width: a list of sentences, empty for a good page.
const [width, done] = arguments;
const found = new Set();
const name = e =>
  e.tagName.toLowerCase() +
  (e.id ? "#" + e.id : "") +
  [...e.classList].map(each => "." + each).join("") +
  ` in #${(e.closest("section[id]") || { id: "page" }).id}: ${e.textContent.trim().slice(0, 40)}`;
const box = e => e.getBoundingClientRect();
const outside = (inner, outer) => inner.left < outer.left - 1 || inner.right > outer.right + 1;
const seen = e => e.checkVisibility({ visibilityProperty: true }) && !e.closest(".unseen, .skip, #tip, script, datalist");

// A text that does not fit ends in an ellipsis: either by the line, or after so many lines.
function ellipsis(e) {
  const style = getComputedStyle(e);
  const clamped = ["-webkit-box", "flow-root"].includes(style.display);
  return style.textOverflow === "ellipsis" || (clamped && style.webkitLineClamp !== "none");
}
function says(scroller) {
  const hint = scroller.previousElementSibling;
  return Boolean(hint) && hint.matches(".hint") && seen(hint) && /scroll/.test(hint.textContent);
}
function boxes() {
  const window = { left: 0, right: width };
  if (document.documentElement.scrollWidth > width) found.add("the page scrolls sideways");
  for (const e of document.body.querySelectorAll("*")) {
    if (e.ownerSVGElement || !seen(e)) continue;
    const holder = e.closest(".scroll");
    if ((!holder || holder === e) && outside(box(e), window)) found.add("outside the window: " + name(e));
    const style = getComputedStyle(e);
    if (!(e instanceof HTMLElement) || style.display === "inline") continue;
    const over = e.scrollWidth > e.clientWidth + 1;
    if (over && e.matches(".scroll")) {
      if (!says(e)) found.add("scrolls and does not say so: " + name(e));
    } else if (over && !ellipsis(e) && !(holder && e.contains(holder))) found.add("wider than its place: " + name(e));
    const cut = style.overflowY !== "visible" && e.scrollHeight > e.clientHeight + 1;
    if (cut && !e.matches(".scroll") && !ellipsis(e)) found.add("cut: " + name(e));
  }
}
function pictures() {
  for (const picture of document.querySelectorAll("main svg")) {
    if (!seen(picture)) continue;
    const texts = [...picture.querySelectorAll("text")].map(e => [e, box(e)]);
    texts.forEach(([e, a], k) => {
      if (outside(a, box(picture))) found.add("outside its picture: " + name(e));
      for (const [other, b] of texts.slice(k + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 0 && down > 4) found.add(`touches ${other.textContent}: ` + name(e));
      }
    });
  }
  for (const canvas of document.querySelectorAll("main canvas"))
    for (const [text, left, right] of canvas.written || [])
      if (left < -1 || right > canvas.width + 1) found.add("outside its map: " + text);
}
function units() {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!seen(node.parentElement)) continue;
    for (const part of node.data.matchAll(/[\d.,]+\s%/g)) {
      range.setStart(node, part.index);
      range.setEnd(node, part.index + part[0].length);
      const lines = new Set([...range.getClientRects()].map(each => Math.round(each.top)));
      if (lines.size > 1 || !part[0].includes("\u00a0")) found.add("a number apart from its unit: " + name(node.parentElement));
    }
  }
}
function words() {
  for (const e of document.querySelectorAll(".about dt, .option")) {
    const range = document.createRange();
    range.selectNodeContents(e);
    const lines = new Set([...range.getClientRects()].map(each => Math.round(each.top)));
    if (lines.size > 1) found.add("a word is broken: " + name(e));
  }
}
function check() {
  words();
  boxes();
  pictures();
  units();
  done([...found]);
}
// A busy machine may give the window its width some frames later; the page is drawn anew in the frame after that.
function wait(frames) {
  if (frames && innerWidth !== width) requestAnimationFrame(() => wait(frames - 1));
  else requestAnimationFrame(() => requestAnimationFrame(check));
}
wait(100);
