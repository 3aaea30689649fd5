// The last hour as this page knows it: the first answer has all of it, later ones only what is new.

const HOUR_SECONDS = 3600;

export class Hour {
  constructor() {
    this.intervalSeconds = 5;
    this.rows = []; // an object for each interval, oldest first
  }

  // From which interval on to ask: the last ones may still have been filling.
  get since() {
    const last = this.rows.at(-1);
    return last ? last.start_seconds - 2 * this.intervalSeconds : 0;
  }

  merge(answer, nowSeconds) {
    this.intervalSeconds = answer.interval_seconds;
    const names = Object.keys(answer.columns);
    const fresh = answer.columns.start_seconds.map((_, n) =>
      Object.fromEntries(names.map((name) => [name, answer.columns[name][n]])));
    const rows = new Map([...this.rows, ...fresh].map((row) => [row.start_seconds, row]));
    this.rows = [...rows.values()]
      .filter((row) => row.start_seconds > nowSeconds - HOUR_SECONDS)
      .sort((one, other) => one.start_seconds - other.start_seconds);
  }

  // Intervals that are over and began within the last so many seconds.
  last(seconds, nowSeconds) {
    const end = nowSeconds - this.intervalSeconds;
    return this.rows.filter((row) => row.start_seconds <= end && row.start_seconds > end - seconds);
  }

  sum(name) {
    return this.rows.reduce((total, row) => total + row[name], 0);
  }
}
