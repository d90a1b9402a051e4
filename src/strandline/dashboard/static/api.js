// Asking the server, and hearing from it. The feed says what changed; pages then ask for what they show.

export class Refused extends Error {
  constructor(status, told) {
    super(told.error ?? `the server answered ${status}`);
    this.status = status;
    this.detail = told.detail ?? "";
    this.hint = told.hint ?? "";
  }
}

export async function get(path, parameters = {}) {
  return ask(path, parameters, {});
}

export async function post(path, body) {
  const headers = { "content-type": "application/json", "x-strandline": "1" };
  return ask(path, {}, { method: "POST", headers, body: JSON.stringify(body) });
}

async function ask(path, parameters, options) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined && value !== ""));
  const answer = await fetch(`/api${path}${query.size ? `?${query}` : ""}`, { credentials: "same-origin", ...options });
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, told);
  return told;
}

// The feed: an EventSource that is opened again, with a pause that grows to five seconds, for as long as it takes.
export function listen({ onchange, onstate }) {
  let source, wait = 500, timer;
  const open = () => {
    source = new EventSource("/api/feed");
    source.onopen = () => { wait = 500; onstate("live"); };
    source.addEventListener("changed", (event) => onchange(JSON.parse(event.data)));
    source.onerror = () => {
      source.close();
      onstate("lost");
      clearTimeout(timer);
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, 5000);
    };
  };
  open();
  // A phone that wakes up, or a network that returns, need not wait for the pause to end.
  addEventListener("online", () => { if (source.readyState === EventSource.CLOSED) { clearTimeout(timer); open(); } });
}
