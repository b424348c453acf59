"use strict";

// Pays one order ten times at once, and shows what each of the ten requests was told.

const TIMES = 10;
const race = document.getElementById("race");
const title = document.getElementById("race-title");
const outcome = document.getElementById("race-outcome");
const rows = race.querySelector("tbody");

function showButtons() {
  for (const button of document.querySelectorAll("[data-race]")) button.hidden = false;
}

function disableButtons(disabled) {
  for (const button of document.querySelectorAll("#orders button")) button.disabled = disabled;
}

// A row for a request, with its number and nothing else yet.
function addRow(number) {
  const row = rows.insertRow();
  row.innerHTML =
    '<th scope="row"></th><td>…</td><td></td><td class="number"></td>' +
    '<td class="time"><span></span><span class="bar" hidden></span></td>';
  row.cells[0].textContent = number;
  return row;
}

async function pay(form, row) {
  const began = performance.now();
  const answer = { status: "none", text: "The server did not answer.", retryAfter: "" };
  try {
    const response = await fetch(form.action, {
      method: "POST",
      body: new FormData(form),
      headers: { Accept: "application/json" },
    });
    answer.status = response.status;
    answer.retryAfter = response.headers.get("Retry-After") ?? "";
    answer.text = response.statusText;
    answer.text = (await response.json()).detail;
  } catch (error) {
    console.error(error);
  }
  answer.milliseconds = performance.now() - began;
  show(answer, row);
  return answer;
}

// Not every 409 is: an order that was paid before has one too, but no time to wait.
function isBusy(answer) {
  return answer.status === 409 && answer.retryAfter !== "";
}

function whatItMeans(answer) {
  if (answer.status === 200) return "got it, and paid";
  return isBusy(answer) ? "held by somebody else" : answer.text;
}

function show(answer, row) {
  const badge = document.createElement("span");
  badge.className = answer.status === 200 ? "badge paid" : "badge";
  badge.textContent = answer.status;
  row.classList.toggle("won", answer.status === 200);
  row.cells[1].replaceChildren(badge);
  row.cells[2].textContent = whatItMeans(answer);
  row.cells[3].textContent = answer.retryAfter && `${answer.retryAfter} s`;
  const [time, bar] = row.cells[4].children;
  time.textContent = `${Math.round(answer.milliseconds)} ms`;
  bar.hidden = false;
  bar.style.width = `${Math.min(answer.milliseconds / 10, 150)}px`;
}

// Shows the orders as they are now, and keeps what the race has shown.
async function reloadOrders() {
  const page = await (await fetch(location.pathname)).text();
  const fresh = new DOMParser().parseFromString(page, "text/html");
  for (const id of ["orders", "example"]) {
    document.getElementById(id).replaceWith(fresh.getElementById(id));
  }
  showButtons();
}

async function run(button) {
  rows.replaceChildren();
  race.hidden = false;
  title.textContent = `Order ${button.dataset.race}, paid ${TIMES} times at once`;
  outcome.textContent = `${TIMES} requests are on their way.`;
  disableButtons(true);
  const shown = Array.from({ length: TIMES }, (_, index) => addRow(index + 1));
  title.focus();
  race.scrollIntoView({ block: "nearest" });
  const answers = await Promise.all(shown.map((row) => pay(button.form, row)));
  const won = answers.filter((answer) => answer.status === 200).length;
  const busy = answers.filter(isBusy).length;
  outcome.textContent = `${won} got the lock and paid. ${busy} were told to come back later.`;
  await reloadOrders().catch(() => disableButtons(false));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-race]");
  if (button) run(button);
});

showButtons();
