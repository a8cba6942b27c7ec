// The list of jobs: suggestions while a filter is typed, and a selection that survives live updates.
"use strict";

const filter = document.getElementById("filter");
const list = document.getElementById("suggestions");

// -- suggestions -----------------------------------------------------------------------------------------------------

const options = () => [...list.querySelectorAll("[role=option]")];
const chosen = () => options().findIndex((option) => option.getAttribute("aria-selected") === "true");

function open(shown) {
  const there = shown && options().length > 0;
  list.hidden = !there;
  filter.setAttribute("aria-expanded", String(there));
  if (!there) filter.removeAttribute("aria-activedescendant");
}

function point(at) {
  const all = options();
  for (const option of all) option.setAttribute("aria-selected", "false");
  const option = all[(at + all.length) % all.length];
  option.setAttribute("aria-selected", "true");
  option.scrollIntoView({ block: "nearest" });
  filter.setAttribute("aria-activedescendant", option.id);
}

function take(option) {
  filter.value = option.dataset.text;
  option.setAttribute("aria-selected", "false"); // the next Enter is for the filter, also before new suggestions are there
  open(false);
  filter.focus();
  filter.dispatchEvent(new Event("input", { bubbles: true }));
}

let typed = false; // only who types is offered something: a page that is opened stays calm
filter.addEventListener("input", () => { typed = true; });
new MutationObserver(() => open(typed && document.activeElement === filter)).observe(list, { childList: true });
filter.addEventListener("blur", () => setTimeout(() => open(false), 150));
list.addEventListener("mousedown", (event) => {
  const option = event.target.closest("[role=option]");
  if (option) { event.preventDefault(); take(option); }
});
filter.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    typed = true;
    if (list.hidden) open(true);
    if (!list.hidden) { event.preventDefault(); point(chosen() + (event.key === "ArrowDown" ? 1 : chosen() < 0 ? 0 : -1)); }
  } else if ((event.key === "Enter" || event.key === "Tab") && !list.hidden && chosen() >= 0) {
    event.preventDefault();
    take(options()[chosen()]);
  } else if (event.key === "Escape" && !list.hidden) {
    event.stopPropagation();
    open(false);
  }
});

// -- selection -------------------------------------------------------------------------------------------------------

const selection = document.getElementById("selection");
const picked = new Set(); // ids, also of jobs that have left the page since

function ticks() { return [...document.querySelectorAll("#live input[type=checkbox][name=id]")]; }

function tell() {
  const here = new Set();
  for (const tick of ticks()) {
    tick.checked = picked.has(tick.value);
    here.add(tick.value);
    tick.closest("tr").toggleAttribute("data-picked", tick.checked);
  }
  for (const hidden of selection.querySelectorAll("input[type=hidden][name=id]")) hidden.remove();
  for (const id of picked) {
    if (!here.has(id)) selection.append(Object.assign(document.createElement("input"), { type: "hidden", name: "id", value: id }));
  }
  const all = selection.elements.namedItem("all");
  selection.hidden = !picked.size && !all?.checked;
  document.getElementById("selected").textContent = all?.checked ? "All that match" : `${picked.size.toLocaleString("en")} selected`;
  if (picked.size) selection.dispatchEvent(new CustomEvent("holdfast:selected"));
}

if (selection) {
  document.addEventListener("change", (event) => {
    if (event.target.name === "id") { if (event.target.checked) picked.add(event.target.value); else picked.delete(event.target.value); }
    if (event.target.name === "id" || event.target.name === "all") tell();
  });
  document.addEventListener("holdfast:shown", tell);
  addEventListener("pageshow", () => { for (const tick of ticks()) if (tick.checked) picked.add(tick.value); tell(); });
  tell();
}
