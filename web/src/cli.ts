// The command that does what a form does. Pure, so that what is shown and what is done come from the same values.

/** Quotes for a POSIX shell where needed. */
export function quote(text: string): string {
  return /^[A-Za-z0-9_./:@,=+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

export interface RuleForm {
  /** A resource, `namespace.cloud.name`, or a tag. */
  on: string;
  onTag: boolean;
  direction: "in" | "out";
  protocol: string;
  port: string;
  peers: string;
  name: string;
}

export const PROTOCOLS: Record<string, number> = { any: -1, tcp: 6, udp: 17, icmp: 1, sctp: 132 };

export function list(text: string): string[] {
  return text.split(/[\s,]+/).filter((part) => part !== "");
}

export function ruleCommand(form: RuleForm): string {
  const on = form.onTag ? `--tag ${quote(form.on)}` : quote(form.on || "RESOURCE");
  const port = form.port ? ` --port ${quote(form.port)}` : "";
  const name = form.name ? ` --name ${quote(form.name)}` : "";
  const peers = list(form.peers).map(quote).join(",") || "PEER";
  return `trestle rule add ${on} --${form.direction} --protocol ${form.protocol}${port}${name} --peer ${peers}`;
}

/** The body that REST takes for the same rule. */
export function ruleBody(form: RuleForm) {
  const [first = "", last = ""] = form.port.split("-");
  return {
    name: form.name,
    targets: [],
    direction: form.direction === "in" ? 0 : 1,
    src_port: -1,
    dst_port: form.port === "" ? -1 : Number(first),
    src_port_last: 0,
    dst_port_last: last === "" ? 0 : Number(last),
    protocol: PROTOCOLS[form.protocol] ?? -1,
    tags: list(form.peers),
  };
}

export interface AllowForm {
  from: string;
  to: string;
  /** As in `tcp 5432, icmp`. */
  traffic: string;
}

/** `tcp 5432, icmp` as the API takes it. */
export function trafficOf(text: string): string[] {
  return text.split(",").map((part) => part.trim().replace(/\s+/g, " ")).filter((part) => part !== "");
}

export function allowCommand(form: AllowForm): string {
  const words = trafficOf(form.traffic).map((part) => {
    const [protocol = "", ports = ""] = part.split(" ");
    if (protocol === "icmp") return "--ping";
    if (ports === "") return `--proto ${quote(protocol)}`;
    return `--port ${quote(protocol === "tcp" ? ports : `${ports}/${protocol}`)}`;
  });
  return `trestle allow ${quote(form.from || "FROM")} ${quote(form.to || "TO")} ${words.join(" ") || "--port PORT"}`;
}

export interface TagForm {
  name: string;
  kind: "leaf" | "group";
  ip: string;
  members: string;
}

export function tagCommand(form: TagForm): string {
  const name = quote(form.name || "NAME");
  if (form.kind === "leaf") return `trestle tag set ${name} --ip ${quote(form.ip || "ADDRESS")}`;
  return `trestle tag set ${name} --children ${list(form.members).map(quote).join(",") || "MEMBERS"}`;
}

export function ticketCommand(limit: string, hours: string): string {
  const limited = limit ? ` --limit ${quote(limit)}` : "";
  return `trestle ticket create${limited}${hours && hours !== "48" ? ` --ttl ${quote(hours)}h` : ""}`;
}

export interface HostForm {
  tags: string;
  uses: string;
  hours: string;
}

export function joinTokenCommand(form: HostForm): string {
  const tags = list(form.tags).map((tag) => ` --tag ${quote(tag)}`).join("");
  const uses = form.uses && form.uses !== "1" ? ` --uses ${quote(form.uses)}` : "";
  return `trestle token create --join${tags}${uses} --for ${quote(form.hours || "1")}h`;
}

/** What is run on the host. */
export function joinCommand(server: string, token: string): string {
  return `sudo trestle join ${quote(server)} ${token}`;
}

export function explainCommand(source: string, destination: string, protocol: string, port: string): string {
  const options = `${protocol && !(protocol === "tcp" && port) ? ` --protocol ${protocol}` : ""}${port ? ` --port ${quote(port)}` : ""}`;
  return `trestle explain ${quote(source || "A")} ${quote(destination || "B")}${options}`;
}

/** Those of two ends; `many` is nobody's name. */
export function flowsCommand(from: string, to: string, verdict: string): string {
  const end = (flag: string, name: string) => (name && name !== "many" ? ` --${flag} ${quote(name)}` : "");
  return `trestle flows${end("from", from)}${end("to", to)} --verdict ${verdict}`;
}
