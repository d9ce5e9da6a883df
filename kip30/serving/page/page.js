// The page of `kip30 serve`. Data of the store is escaped and shown by textContent, never as markup.
"use strict";

const SILENCE_MS = 20000; // the server sends something every 5 s, except while it is away
const RETRY_MS = 2000;
const BANS_IN_SHORT = 3; // a group has up to 40
const $ = (id) => document.getElementById(id);
let token = "";
let overview = null;
let heardAt = null;
let following = null; // the loop that keeps a stream of events open; a former one ends
let stream = null; // aborts the stream of events that is open
let detail = null; // what is shown beside the lists

// As kip30.cli._output.escaped does: nothing breaks a line, hides, or turns the direction of text.
const HIDDEN = /[\p{C}\p{Z}]/gu;
const NAMED = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };
const hex = (code, mark, length) => `\\${mark}${code.toString(16).padStart(length, "0")}`;
function escaped(value) {
  return String(value).replace(HIDDEN, (one) => {
    if (one === " ") return one;
    const code = one.codePointAt(0);
    return NAMED[one] || (code < 256 ? hex(code, "x", 2) : code < 65536 ? hex(code, "u", 4) : hex(code, "U", 8));
  });
}

function element(name, content, kind) {
  const made = document.createElement(name);
  if (Array.isArray(content)) made.append(...content);
  else made.textContent = escaped(content ?? "");
  if (kind) made.className = kind;
  return made;
}

function moment(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const time = new Date(seconds * 1000);
  const local = new Date(time - time.getTimezoneOffset() * 60000);
  return isNaN(local) ? String(seconds) : local.toISOString().slice(0, 19).replace("T", " ");
}

function button(text, act) {
  const made = element("button", text);
  made.type = "button";
  made.addEventListener("click", () => act(made));
  return made;
}

const table = (titles, rows) => element("table", [
  element("thead", [element("tr", titles.map((one) => element("th", one)))]),
  element("tbody", rows.map((row) => element("tr", row.map((one) => element("td", one))))),
]);

// -- rows of names that change, of which only the changed ones are touched

class Names {
  constructor(id, cells, open) {
    this.body = $(id);
    this.count = $(`${id}-count`);
    this.filter = $(`${id}-filter`);
    this.cells = cells;
    this.open = open;
    this.rows = new Map();
    this.order = [];
    this.filter.addEventListener("input", () => this.refilter());
  }

  update(changes) {
    for (const [name, fields] of Object.entries(changes)) {
      if (fields === null) this.remove(name);
      else this.show(this.rows.get(name) || this.insert(name), name, fields);
    }
    this.recount();
  }

  insert(name) {
    let from = 0;
    for (let to = this.order.length; from < to;) {
      const middle = (from + to) >> 1;
      if (this.order[middle] < name) from = middle + 1;
      else to = middle;
    }
    const row = element("tr", [element("td", [button(name, (opener) => this.open(name, opener))])]);
    this.body.insertBefore(row, this.rows.get(this.order[from]) || null);
    this.order.splice(from, 0, name);
    this.rows.set(name, row);
    return row;
  }

  remove(name) {
    this.rows.get(name)?.remove();
    this.rows.delete(name);
    this.order = this.order.filter((one) => one !== name);
  }

  show(row, name, fields) {
    this.cells(fields).forEach((value, number) => {
      const cell = row.cells[number + 1] || row.appendChild(element("td"));
      const text = escaped(value ?? "–");
      if (cell.textContent !== text) cell.textContent = text;
    });
    row.hidden = !this.matches(row);
  }

  matches(row) {
    return row.textContent.toLowerCase().includes(this.filter.value.toLowerCase());
  }

  refilter() {
    for (const row of this.rows.values()) row.hidden = !this.matches(row);
    this.recount();
  }

  recount() {
    const shown = [...this.rows.values()].filter((row) => !row.hidden).length;
    this.count.textContent = shown === this.rows.size ? shown : `${shown} of ${this.rows.size}`;
  }
}

const why = (reason) => (reason ? `: ${reason}` : "");

function directives({ pause, step_down: stepDown }) {
  const said = [];
  if (pause) said.push(`paused by ${pause.by} until ${pause.until === null ? "resumed" : moment(pause.until)}${why(pause.reason)}`);
  if (stepDown) said.push(`step-down by ${stepDown.by}${stepDown.successor === null ? "" : `, for ${stepDown.successor}`}${why(stepDown.reason)}`);
  return said.join("; ") || null;
}

function bansInShort(bans) {
  const said = bans.slice(0, BANS_IN_SHORT).map((one) => `${one.id} until ${moment(one.until)} by ${one.by}${why(one.reason)}${one.is_member ? ", still a member" : ""}`);
  if (bans.length > BANS_IN_SHORT) said.push(`${bans.length - BANS_IN_SHORT} more`);
  return said.join("; ") || null;
}

const serviceCells = (one) => [one.readable ? one.leader : "?", one.epoch, one.since && moment(one.since), one.waiting, directives(one)];
const services = new Names("services", serviceCells, (name, opener) => show(name, "service", { name }, serviceDetail, opener));
const groupCells = (one) => [one.members, bansInShort(one.bans)];
const groups = new Names("groups", groupCells, (name, opener) => show(name, "group", { name }, groupDetail, opener));

// -- what the server sends

function take(event) {
  const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(event) || [];
  if (!name) return; // a comment
  const record = JSON.parse(data);
  for (const [field, names] of [["services", services], ["groups", groups]]) {
    const gone = name === "overview" ? names.order.filter((one) => !Object.hasOwn(record[field], one)) : [];
    names.update({ ...record[field], ...Object.fromEntries(gone.map((one) => [one, null])) });
    if (detail && record[field] && detail.kind === field.slice(0, -1) && Object.hasOwn(record[field], detail.given.name)) refresh();
  }
  if (name === "overview" && detail) refresh();
  overview = { ...overview, ...record };
  showState();
}

function showState() {
  $("ask").hidden = true;
  $("shown").hidden = false;
  $("store").textContent = escaped(`${overview.store} ${overview.place ?? ""}`);
  document.title = `kip30 ${escaped(overview.store)}`;
  $("read").textContent = overview.at === null ? "" : `read ${moment(overview.at)} in ${overview.read_ms} ms`;
  const items = overview.attention.map((one) => element("li", one));
  $("attention").replaceChildren(...items);
  $("problems").hidden = !items.length;
  if (overview.error === null) connection("live", "good");
  else connection(`the store cannot be read${overview.at === null ? "" : ` since ${moment(overview.at)}`}: ${overview.error}`, "bad");
}

function connection(text, kind) {
  const shown = $("connection");
  if (shown.textContent !== escaped(text)) shown.textContent = escaped(text); // or it would be read out again
  shown.className = kind;
}

class Refused extends Error {}

async function request(path, signal) {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  if (response.status === 401) throw new Refused("the server refuses this token");
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Error(told.error || `the server answers ${response.status}`);
}

async function follow() {
  stream = new AbortController();
  const own = stream;
  let timer = setTimeout(() => own.abort(), SILENCE_MS);
  try {
    const response = await request("api/events", own.signal);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let text = "", part; !(part = await reader.read()).done;) {
      heardAt = Date.now() / 1000;
      clearTimeout(timer);
      timer = setTimeout(() => own.abort(), SILENCE_MS);
      const events = (text + part.value).split("\n\n");
      text = events.pop();
      events.forEach(take);
    }
  } finally {
    clearTimeout(timer);
    own.abort();
  }
}

async function keepFollowing(given) {
  token = given;
  const own = {};
  following = own;
  for (;;) {
    // Nothing is read for a page that is not seen.
    while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
    if (following !== own) return;
    let failure = new Error("the server has ended the connection");
    try {
      await follow();
    } catch (error) {
      failure = error;
    }
    if (following !== own) return;
    if (failure instanceof Refused) return askForToken(failure.message);
    connection(`not connected ${heardAt === null ? "yet" : `since ${moment(heardAt)}`}: ${failure.message}`, "bad");
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

function askForToken(why) {
  token = "";
  following = null;
  $("ask").hidden = false;
  $("shown").hidden = true;
  close();
  if (why) $("refused").textContent = `${why}: it may have been started anew. Open the address that it has printed.`;
  connection("no token", "bad");
  $("token").focus();
}

function start() {
  const given = /^#token=(.+)$/.exec(location.hash);
  // No log and no history keeps it, nor does a copy of the address.
  if (location.hash) history.replaceState(null, "", location.pathname);
  if (given) begin(given[1]);
  else if (!token) askForToken();
}

function begin(given) {
  stream?.abort();
  connection("connecting", "");
  keepFollowing(given);
}

// -- details

function show(title, kind, given, compose, opener) {
  detail = { title, kind, given, compose, opener };
  $("detail-title").textContent = `${kind} ${escaped(title)}`;
  $("detail-body").replaceChildren(element("p", "reading"));
  $("detail").hidden = false;
  $("detail").focus();
  refresh();
}

async function refresh() {
  const own = detail;
  if (own.isReading) {
    own.isStale = true;
    return;
  }
  own.isReading = true;
  let shown;
  try {
    const response = await request(`api/${own.kind}?${new URLSearchParams(own.given)}`);
    shown = own.compose(await response.json());
  } catch (error) {
    shown = [element("p", error.message, "error")];
  }
  own.isReading = false;
  if (detail !== own) return;
  $("detail-body").replaceChildren(...shown);
  if (own.isStale) {
    own.isStale = false;
    refresh();
  }
}

function close() {
  const opener = detail?.opener;
  detail = null;
  $("detail").hidden = true;
  opener?.focus();
}

function serviceDetail(record) {
  const now = services.rows.get(record.service);
  const shown = record.problems.map((one) => element("p", one, "error"));
  const state = now ? [...now.cells].slice(1).map((cell) => cell.textContent) : ["–", "–", "–", "–", "–"];
  shown.push(table(["Leader", "Epoch", "Since", "Waiting", "Directives"], [state]));
  shown.push(element("h3", "Terms"));
  if (record.terms.length) shown.push(...timeline(record.terms));
  else shown.push(element("p", "None is noted. Leaders note their terms with plugin.operations=true.", "soft"));
  shown.push(element("h3", "Line"));
  if (record.line === null) shown.push(element("p", "Candidates form no line on this store.", "soft"));
  else if (!record.line.length) shown.push(element("p", "No candidate waits.", "soft"));
  else shown.push(table(["Place", "Candidate", "Host", "Process", "Since", "Priority"], record.line.map((one, number) => [one.readable ? number + 1 : "?", one.candidate ?? "–", one.host, one.pid, moment(one.since), one.priority])));
  if (record.more) shown.push(element("p", `${record.more} more`, "soft"));
  if (record.directives.length) {
    shown.push(element("h3", "Directives until now"));
    shown.push(table(["Number", "At", "By", "Directive"], record.directives.map((one) => [one.number, moment(one.at), one.by, one.action])));
  }
  return now ? shown : [element("p", "This service is gone.", "soft"), ...shown];
}

function timeline(terms) {
  const now = Date.now() / 1000;
  const first = Math.min(...terms.map((one) => one.since));
  const whole = Math.max(now - first, 1);
  const bars = terms.map((one) => {
    const bar = element("div", "", one.until === null ? "term now" : "term");
    bar.style.left = `${(100 * (one.since - first)) / whole}%`;
    bar.style.width = `${(100 * Math.max(0, (one.until ?? now) - one.since)) / whole}%`;
    bar.title = escaped(`${one.epoch} ${one.candidate}`);
    return bar;
  });
  const ends = element("div", [element("span", moment(first)), element("span", "now")], "ends");
  const rows = [...terms].reverse().map((one) => [one.epoch, one.candidate, moment(one.since), one.until === null ? "–" : moment(one.until), one.ended]);
  return [element("div", bars, "timeline"), ends, table(["Epoch", "Candidate", "From", "To", "Ended"], rows)];
}

function groupDetail(record) {
  const unreadable = new Set(record.unreadable);
  const items = record.members.map((one) => element("li", unreadable.has(one) ? `${one} (cannot be read)` : one));
  if (record.more) items.push(element("li", `${record.more} more`, "soft"));
  const shown = record.problems.map((one) => element("p", one, "error"));
  shown.push(items.length ? element("ul", items) : element("p", "It has no members.", "soft"));
  if (record.bans.length) {
    const rows = record.bans.map((one) => [one.id, moment(one.until), one.by, one.reason, moment(one.at), one.is_member ? "yes" : "–"]);
    shown.push(element("h3", "Bans"), table(["Id", "Until", "By", "Reason", "Since", "Still a member"], rows));
  }
  return shown;
}

function valueDetail(record) {
  if (record.value === undefined) return [element("p", "It is not UTF-8; in base64:"), element("pre", record.value_base64)];
  const text = element("pre");
  text.textContent = record.value.split("\n").map(escaped).join("\n");
  return [text];
}

// -- keys and servers, read when they are asked for

function readOnOpening(folder, namespace) {
  folder.addEventListener("toggle", (event) => {
    if (event.target === folder && folder.open) listKeys(folder, namespace, "");
  });
}

async function listKeys(folder, namespace, beginning) {
  const list = element("ul", [element("li", "reading", "soft")]);
  folder.querySelector(":scope > ul")?.remove();
  folder.append(list);
  try {
    const response = await request(`api/keys?${new URLSearchParams({ namespace, beginning })}`);
    list.replaceChildren(...keyItems(folder, namespace, beginning, await response.json()));
  } catch (error) {
    list.replaceChildren(element("li", error.message, "error"));
  }
}

function keyItems(folder, namespace, beginning, record) {
  const items = record.names.map((one) => {
    const whole = namespace ? `${namespace}/${one.name}` : one.name;
    if (one.keys !== undefined) {
      const below = element("details", [element("summary", `${one.name} (${one.keys})`)]);
      readOnOpening(below, whole.slice(0, -1));
      return element("li", [below]);
    }
    const about = element("span", ` ${one.bytes} bytes, version ${one.version}`, "soft");
    const open = (opener) => show(whole, "value", { key: whole }, valueDetail, opener);
    return element("li", [record.shows_values ? button(one.name, open) : element("span", one.name), about]);
  });
  if (record.unreadable) items.push(element("li", `${record.unreadable} cannot be read`, "error"));
  if (record.more || beginning) items.push(beginningItem(folder, namespace, beginning, record.more));
  if (!items.length) items.push(element("li", "no keys", "soft"));
  return items;
}

function beginningItem(folder, namespace, beginning, more) {
  const input = element("input");
  input.value = beginning;
  input.addEventListener("change", () => listKeys(folder, namespace, input.value));
  return element("li", [element("label", [`${more} more; only those that begin with `, input])], "soft");
}

async function checkServers() {
  $("checking").textContent = "checking";
  const figure = (milliseconds) => (milliseconds === null ? "" : `${milliseconds} ms`);
  try {
    const { servers } = await (await request("api/servers")).json();
    const rows = servers.map((one) => [one.server, one.version, one.role, figure(one.median_ms), figure(one.worst_ms), one.error]);
    $("servers").replaceChildren(...table([], rows).tBodies[0].rows);
    $("servers-table").hidden = false;
    $("checking").textContent = "";
  } catch (error) {
    $("checking").textContent = escaped(error.message);
  }
}

readOnOpening($("keys"), "");
$("check").addEventListener("click", checkServers);
$("close").addEventListener("click", close);
$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  begin($("token").value.trim());
  $("token").value = "";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && detail) close();
  if (event.key === "/" && event.target.tagName !== "INPUT") {
    event.preventDefault();
    $("services-filter").focus();
  }
});
document.addEventListener("visibilitychange", () => document.hidden && stream?.abort());
window.addEventListener("hashchange", start);
start();
