//! Signed messages with their content inside (PKCS #7 of RFC 2315, CMS of RFC 5652), as clouds sign documents about instances (pure).
//!
//! In: bytes of a stranger. Out: the content, if somebody with one of the given keys signed it with RSA and SHA-256; everything else is
//! refused. Read is what is needed of it, in BER: AWS writes lengths that are said by an end mark. No crate that is kept well reads that.

use aws_lc_rs::{
    digest,
    signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey},
};

/// Things within things.
const DEPTH: usize = 12;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OCTETS: u8 = 0x04;
const CONSTRUCTED: u8 = 0x20;
const OBJECT_ID: u8 = 0x06;
/// Context-specific and constructed: the first and the second optional part.
const FIRST: u8 = 0xa0;
const SECOND: u8 = 0xa1;

const SIGNED_DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];
const DATA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x01];
const CONTENT_TYPE: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x03];
const MESSAGE_DIGEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x04];
const SHA256: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01];
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const SHA256_WITH_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];

/// A message, of which nothing is proven yet.
#[derive(Debug)]
pub struct Message {
    pub content: Vec<u8>,
    /// In DER, as they were sent along.
    pub certificates: Vec<Vec<u8>>,
    signers: Vec<Signer>,
}

#[derive(Debug)]
struct Signer {
    /// What was signed in place of the content, as DER.
    attributes: Option<Vec<u8>>,
    signature: Vec<u8>,
}

impl Message {
    /// None if it is no such message.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (outer, _) = element(bytes, 0)?;
        let [kind, content] = two(outer.inside(SEQUENCE)?)?;
        (kind.is(OBJECT_ID, SIGNED_DATA) && content.tag == FIRST).then_some(())?;
        let [signed] = content.parts()?.try_into().ok()?;
        let mut parts = signed.inside(SEQUENCE)?.into_iter();
        let (_version, _digests) = (parts.next()?, parts.next()?);
        let [kind, content] = two(parts.next()?.inside(SEQUENCE)?)?;
        (kind.is(OBJECT_ID, DATA) && content.tag == FIRST).then_some(())?;
        let [content] = content.parts()?.try_into().ok()?;
        let mut message = Self { content: content.octets(0)?, certificates: Vec::new(), signers: Vec::new() };
        for part in parts {
            match part.tag {
                FIRST => message.certificates.extend(part.parts()?.iter().map(|one| one.whole.to_vec())),
                SECOND => {}
                SET => message.signers.extend(part.parts()?.into_iter().filter_map(signer)),
                _ => return None,
            }
        }
        Some(message)
    }

    /// Whether the owner of an RSA key (PKCS #1, in DER) signed the content.
    pub fn is_signed_by(&self, key: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key);
        self.signers.iter().any(|signer| {
            let signed = match &signer.attributes {
                None => self.content.as_slice(),
                Some(attributes) if are_of(attributes, &self.content) => attributes,
                Some(_) => return false,
            };
            key.verify(signed, &signer.signature).is_ok()
        })
    }
}

/// One that signed in a way that is known here.
fn signer(of: Element<'_>) -> Option<Signer> {
    let mut parts = of.inside(SEQUENCE)?.into_iter();
    let (_version, _who, digest) = (parts.next()?, parts.next()?, parts.next()?);
    let is_sha256 = digest.inside(SEQUENCE)?.first()?.is(OBJECT_ID, SHA256);
    let mut next = parts.next()?;
    let mut attributes = None;
    if next.tag == FIRST {
        // They are signed as the set that they are, and not as the part of this message.
        let mut der = next.whole.to_vec();
        *der.first_mut()? = SET;
        attributes = Some(der);
        next = parts.next()?;
    }
    let algorithm = next.inside(SEQUENCE)?;
    let is_rsa = [RSA, SHA256_WITH_RSA]
        .iter()
        .any(|known| algorithm.first().is_some_and(|algorithm| algorithm.is(OBJECT_ID, known)));
    let signature = parts.next()?.octets(0)?;
    (is_sha256 && is_rsa).then_some(Signer { attributes, signature })
}

/// Whether signed attributes are of this content: they must name its digest and say that it is data.
fn are_of(attributes: &[u8], content: &[u8]) -> bool {
    let value = |wanted: &[u8]| {
        let (set, _) = element(attributes, 0)?;
        let mut found = set.parts()?.into_iter().filter_map(|attribute| {
            let [kind, values] = two(attribute.inside(SEQUENCE)?)?;
            let [value] = values.inside(SET)?.try_into().ok()?;
            kind.is(OBJECT_ID, wanted).then_some((value.tag, value.content.to_vec()))
        });
        let value = found.next()?;
        found.next().is_none().then_some(value)
    };
    let digest = digest::digest(&digest::SHA256, content);
    value(MESSAGE_DIGEST) == Some((OCTETS, digest.as_ref().to_vec()))
        && value(CONTENT_TYPE) == Some((OBJECT_ID, DATA.to_vec()))
}

/// A tag, its content, and all of its bytes.
#[derive(Clone, Copy, Debug)]
struct Element<'a> {
    tag: u8,
    content: &'a [u8],
    whole: &'a [u8],
    depth: usize,
}

impl<'a> Element<'a> {
    fn is(&self, tag: u8, content: &[u8]) -> bool {
        self.tag == tag && self.content == content
    }

    /// What is in it, if it has this tag.
    fn inside(&self, tag: u8) -> Option<Vec<Element<'a>>> {
        if self.tag == tag { self.parts() } else { None }
    }

    fn parts(&self) -> Option<Vec<Element<'a>>> {
        let (mut rest, mut parts) = (self.content, Vec::new());
        while !rest.is_empty() {
            let (part, after) = element(rest, self.depth + 1)?;
            parts.push(part);
            rest = after;
        }
        Some(parts)
    }

    /// A string of bytes, which may come in pieces.
    fn octets(&self, depth: usize) -> Option<Vec<u8>> {
        match self.tag {
            OCTETS => Some(self.content.to_vec()),
            tag if tag == OCTETS | CONSTRUCTED && depth < DEPTH => {
                let pieces: Option<Vec<_>> =
                    self.parts()?.iter().map(|piece| piece.octets(depth + 1)).collect();
                Some(pieces?.concat())
            }
            _ => None,
        }
    }
}

fn two(parts: Vec<Element<'_>>) -> Option<[Element<'_>; 2]> {
    parts.try_into().ok()
}

/// The first element, and what follows it.
fn element(bytes: &[u8], depth: usize) -> Option<(Element<'_>, &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    // Numbers of tags that take further bytes occur nowhere here.
    if tag & 0x1f == 0x1f || depth > DEPTH {
        return None;
    }
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0x80 => return endless(bytes, tag, rest, depth),
        short @ 0..0x80 => (usize::from(short), rest),
        long => {
            let (length, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
            // More than three bytes of length is more than is read at all.
            (length.len() <= 3).then_some(())?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, after) = rest.split_at_checked(length)?;
    let whole = &bytes[..bytes.len() - after.len()];
    Some((Element { tag, content, whole, depth }, after))
}

/// One whose end is where its parts end in a mark of two zeros.
fn endless<'a>(bytes: &'a [u8], tag: u8, inside: &'a [u8], depth: usize) -> Option<(Element<'a>, &'a [u8])> {
    if tag & CONSTRUCTED == 0 {
        return None;
    }
    let mut rest = inside;
    loop {
        if let Some(after) = rest.strip_prefix(&[0, 0]) {
            let content = &inside[..inside.len() - rest.len()];
            let whole = &bytes[..bytes.len() - after.len()];
            return Some((Element { tag, content, whole, depth }, after));
        }
        (_, rest) = element(rest, depth + 1)?;
    }
}

#[cfg(test)]
pub(super) mod tests;
