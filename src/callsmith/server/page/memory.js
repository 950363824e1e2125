// What the browser remembers. Where it may not, or has no room, the page remembers it until it is left.

function memory(name) {
  const own = new Map();
  const attempt = (work) => {
    try {
      return work(window[name]) ?? null;
    } catch {
      return undefined; // it is not allowed, or full
    }
  };
  return {
    getItem: (key) => own.get(key) ?? attempt((place) => place.getItem(key)) ?? null,
    // Whether it is remembered for longer.
    setItem(key, value) {
      own.delete(key);
      const isKept = attempt((place) => place.setItem(key, value)) !== undefined;
      if (!isKept) own.set(key, value);
      return isKept;
    },
    removeItem(key) {
      own.delete(key);
      attempt((place) => place.removeItem(key));
    },
  };
}

export const forLong = memory("localStorage");
export const forTheTab = memory("sessionStorage");
