// The search over all documents: sections that have every word, best first.

interface Document {
  file: string;
  title: string;
  sections: { id: string; title: string; text: string }[];
}

const MOST = 20;
const AROUND = 60;

const field = document.getElementById("search") as HTMLInputElement;
const found = document.getElementById("found") as HTMLUListElement;
const all = document.getElementById("all") as HTMLDetailsElement;
let index: Promise<Document[]> | undefined;

// Beside the document there is room for the list, above it there is not.
all.open = matchMedia("(min-width: 60rem)").matches;
document.querySelector("#all [aria-current]")?.scrollIntoView({ block: "nearest" });

/** `/` goes to the search, as on the page. */
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target === field) return;
  event.preventDefault();
  field.focus();
});

field.addEventListener("input", () => void search());

async function search() {
  const text = field.value;
  const words = text.toLowerCase().split(/\s+/).filter((word) => word.length > 1);
  if (words.length === 0) return found.replaceChildren();
  index ??= fetch("/page/docs-index.json").then((reply) => reply.json() as Promise<Document[]>);
  const documents = await index;
  if (field.value !== text) return;
  const hits = documents.flatMap(({ file, title, sections }) => sections.map((section) => {
    const [head, body] = [`${title} ${section.title}`.toLowerCase(), section.text.toLowerCase()];
    const score = words.every((word) => body.includes(word) || head.includes(word)) ? words.filter((word) => head.includes(word)).length * 10 + Math.min(5, body.split(words[0] ?? "").length) : 0;
    return { file, title, section, score };
  })).filter(({ score }) => score > 0).toSorted((a, b) => b.score - a.score).slice(0, MOST);
  found.replaceChildren(...hits.map(({ file, title, section }) => {
    const link = document.createElement("a");
    link.href = `${file}${section.id ? `#${section.id}` : ""}`;
    const name = document.createElement("b");
    name.textContent = section.title && section.title !== title ? `${title}: ${section.title}` : title;
    const at = Math.max(0, section.text.toLowerCase().indexOf(words[0] ?? "") - AROUND / 2);
    const part = document.createElement("small");
    part.textContent = `…${section.text.slice(at, at + 2 * AROUND)}…`;
    link.append(name, part);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  if (hits.length === 0) {
    const none = document.createElement("li");
    none.textContent = "Nothing has all of these words.";
    found.append(none);
  }
}
