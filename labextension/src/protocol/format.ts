/** Numbers as people read them in a narrow table. */

export function bytes(count: number | null | undefined): string {
  if (count == null) {
    return '';
  }
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit++;
  }
  return `${value.toFixed(value < 10 && unit > 2 ? 1 : 0)} ${units[unit]}`;
}

export function seconds(value: number | null): string {
  if (value === null) {
    return '';
  }
  if (value < 60) {
    return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  }
  const minutes = Math.floor(value / 60);
  return minutes < 60
    ? `${minutes}:${pad(value % 60)} min`
    : `${Math.floor(minutes / 60)}:${pad(minutes % 60)} h`;
}

function pad(value: number): string {
  return Math.floor(value).toString().padStart(2, '0');
}
