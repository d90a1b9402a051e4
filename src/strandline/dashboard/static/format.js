// Format numbers and times for people.

const DASH = "–";

export function many(number) {
  if (number === null || number === undefined) return DASH;
  const size = Math.abs(number);
  if (size >= 1e9) return `${trim(number / 1e9)} G`;
  if (size >= 1e6) return `${trim(number / 1e6)} M`;
  if (size >= 1e4) return `${trim(number / 1e3)} k`;
  if (Number.isInteger(number) || size >= 100) return String(Math.round(number));
  return trim(number);
}

function trim(number) {
  const size = Math.abs(number);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return number.toFixed(digits).replace(/\.?0+$/, (found) => (found.startsWith(".") ? "" : found));
}

export function whole(number) {
  return number === null || number === undefined ? DASH : Math.round(number).toLocaleString("en").replaceAll(",", "\u202f");
}

export function seconds(value) {
  if (value === null || value === undefined) return DASH;
  const size = Math.abs(value), sign = value < 0 ? "−" : "";
  if (size < 1) return `${sign}${Math.round(size * 1000)} ms`;
  if (size < 120) return `${sign}${trim(size)} s`;
  if (size < 7200) return `${sign}${Math.floor(size / 60)} min ${Math.round(size % 60) ? `${Math.round(size % 60)} s` : ""}`.trim();
  if (size < 172800) return `${sign}${trim(size / 3600)} h`;
  return `${sign}${trim(size / 86400)} days`;
}

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  if (value < 1024) return `${Math.round(value)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let size = value;
  for (const unit of units) {
    size /= 1024;
    if (size < 1024 || unit === "TiB") return `${trim(size)} ${unit}`;
  }
  return DASH;
}

export function percent(share) {
  if (share === null || share === undefined) return DASH;
  const value = share * 100;
  if (value > 0 && value < 0.01) return "< 0.01 %";
  if (value > 99.99 && value < 100) return "> 99.99 %";
  return `${trim(value)} %`;
}

const two = (number) => String(number).padStart(2, "0");

export function clock(ms) {
  if (ms === null || ms === undefined) return DASH;
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export function moment(ms) {
  if (ms === null || ms === undefined) return DASH;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return DASH;
  const today = new Date();
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return at.toDateString() === today.toDateString() ? clock(ms) : `${day} ${clock(ms)}`;
}

export function ago(ms, now) {
  if (ms === null || ms === undefined) return "never";
  const passed = (now - ms) / 1000;
  return passed < 2 ? "now" : `${seconds(Math.round(passed))} ago`;
}

// Format {"team": "red"} as "team red"; other texts stay as they are.
export function plain(text) {
  try {
    const parsed = JSON.parse(text);
    if (parsed === null || typeof parsed !== "object" || Array.isArray(parsed)) return text;
    return Object.entries(parsed).map(([name, value]) => `${name} ${typeof value === "object" && value !== null ? JSON.stringify(value) : value}`).join(", ") || "(no key)";
  } catch {
    return text;
  }
}
