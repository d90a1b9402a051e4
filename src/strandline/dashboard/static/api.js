// Send requests to the server, and listen to its feed. The feed reports changes; pages then fetch what they show.

export class ApiError extends Error {
  constructor(status, content) {
    super(content.error ?? `the server answered ${status}`);
    this.status = status;
    this.detail = content.detail ?? "";
    this.hint = content.hint ?? "";
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
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new ApiError(answer.status, content);
  return content;
}

// The feed: an EventSource that reconnects for ever, with a pause that grows to five seconds.
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
  // A phone that wakes up, or a network that returns, reconnects without waiting for the pause.
  addEventListener("online", () => { if (source.readyState === EventSource.CLOSED) { clearTimeout(timer); open(); } });
}
