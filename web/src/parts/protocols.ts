// The protocols that are asked about by name. `other` stands for all that rules can only name by number.

export const PROTOCOLS = ["tcp", "udp", "sctp", "icmp", "other"];

export const hasPorts = (protocol: string) => ["tcp", "udp", "sctp"].includes(protocol);
