//! Packets made by hand, as bytes: the first of an SCTP association (INIT, and INIT ACK with a text as the cookie), and
//! echo requests.

pub const INIT: u8 = 1;
pub const INIT_ACK: u8 = 2;
const COOKIE: u16 = 7;

pub struct Packet {
    pub from: u16,
    pub to: u16,
    pub kind: u8,
    pub tag: u32,
    pub text: Vec<u8>,
}

/// Raw sockets of IPv4 hand out the header of the network too, those of IPv6 do not.
pub fn read(bytes: &[u8], ipv6: bool) -> Option<Packet> {
    let start = if ipv6 { 0 } else { header(bytes)? };
    let bytes = bytes.get(start..)?;
    let number = |at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let tag = u32::from_be_bytes(bytes.get(16..20)?.try_into().ok()?);
    let text = match number(32) {
        Some(COOKIE) => bytes.get(36..32 + usize::from(number(34)?))?.to_vec(),
        _ => Vec::new(),
    };
    Some(Packet { from: number(0)?, to: number(2)?, kind: *bytes.get(12)?, tag, text })
}

pub fn write(from: u16, to: u16, verification: u32, kind: u8, text: &[u8]) -> Vec<u8> {
    let mut chunk = vec![kind, 0, 0, 0];
    chunk.extend(0x1234_5678_u32.to_be_bytes());
    chunk.extend(65_536_u32.to_be_bytes());
    chunk.extend([0, 1, 0, 1, 0, 0, 0, 1]);
    if !text.is_empty() {
        let len = u16::try_from(text.len() + 4).expect("a short text");
        chunk.extend(COOKIE.to_be_bytes());
        chunk.extend(len.to_be_bytes());
        chunk.extend(text);
    }
    let len = u16::try_from(chunk.len()).expect("a short chunk");
    chunk[2..4].copy_from_slice(&len.to_be_bytes());
    chunk.resize(chunk.len().next_multiple_of(4), 0);
    let mut packet =
        [&from.to_be_bytes()[..], &to.to_be_bytes(), &verification.to_be_bytes(), &[0; 4], &chunk].concat();
    let checksum = crc32c(&packet);
    packet[8..12].copy_from_slice(&checksum.to_le_bytes());
    packet
}

/// RFC 9260, appendix A.
fn crc32c(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    });
    !crc
}

/// An echo request. The kernel adds the checksum of IPv6.
pub fn echo(ipv6: bool, number: u16) -> [u8; 8] {
    let [high, low] = number.to_be_bytes();
    let mut echo = [if ipv6 { 128 } else { 8 }, 0, 0, 0, high, low, 0, 1];
    if !ipv6 {
        let sum: u32 = echo.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let folded = u16::try_from((sum & 0xffff) + (sum >> 16)).expect("a folded sum has 16 bits");
        echo[2..4].copy_from_slice(&(!folded).to_be_bytes());
    }
    echo
}

/// Whether the echo with this number was answered, or refused; none if this is about something else.
pub fn answered(bytes: &[u8], ipv6: bool, number: u16) -> Option<bool> {
    let start = if ipv6 { 0 } else { header(bytes)? };
    let message = bytes.get(start..)?;
    let is_ours = |echo: &[u8]| echo.get(4..6) == Some(&number.to_be_bytes());
    match (ipv6, message.first()?) {
        (false, 0) | (true, 129) => is_ours(message).then_some(true),
        // A refusal brings the beginning of what it refuses, which may be somebody else's.
        (false, 3) | (true, 1) => {
            let refused = message.get(8..)?;
            let (protocol, length) =
                if ipv6 { (refused.get(6)?, 40) } else { (refused.get(9)?, header(refused)?) };
            let is_echo = *protocol == if ipv6 { 58 } else { 1 };
            (is_echo && is_ours(refused.get(length..)?)).then_some(false)
        }
        _ => None,
    }
}

/// How long a header of IPv4 is.
fn header(bytes: &[u8]) -> Option<usize> {
    Some(usize::from(bytes.first()? & 15) * 4)
}
