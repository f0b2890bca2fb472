//! Keys and values of sets and maps, field by field, each padded to 4 bytes as the kernel's registers are.

use std::net::IpAddr;

/// The kernel has 16 registers of 4 bytes.
pub(crate) const LONGEST: usize = 64;

/// Being written; what is kept is boxed.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Default for Key {
    fn default() -> Self {
        Self { bytes: [0; LONGEST], len: 0 }
    }
}

impl Key {
    pub fn new() -> Self {
        Self::default()
    }

    /// # Panics
    /// If there is more than the kernel's registers hold.
    #[must_use]
    pub fn bytes(mut self, field: &[u8]) -> Self {
        self.bytes[self.len..self.len + field.len()].copy_from_slice(field);
        self.len = (self.len + field.len()).next_multiple_of(4);
        self
    }

    #[must_use]
    pub fn address(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.bytes(&address.octets()),
            IpAddr::V6(address) => self.bytes(&address.octets()),
        }
    }

    #[must_use]
    pub fn proto(self, number: u8) -> Self {
        self.bytes(&[number])
    }

    #[must_use]
    pub fn port(self, port: u16) -> Self {
        self.bytes(&port.to_be_bytes())
    }

    /// A number in host order: marks, and what `numgen` yields.
    #[must_use]
    pub fn mark(self, number: u32) -> Self {
        self.bytes(&number.to_ne_bytes())
    }

    /// A name padded to the 16 bytes that the kernel compares.
    #[must_use]
    pub fn interface(self, name: &str) -> Self {
        let mut field = [0; 16];
        let len = name.len().min(15);
        field[..len].copy_from_slice(&name.as_bytes()[..len]);
        self.bytes(&field)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub fn into_boxed(self) -> Box<[u8]> {
        self.as_bytes().into()
    }
}

impl From<Key> for Box<[u8]> {
    fn from(key: Key) -> Self {
        key.into_boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_begins_at_a_register() {
        let key = Key::new().address("10.0.0.1".parse().unwrap()).proto(6).port(80);
        assert_eq!(key.as_bytes(), [10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
    }

    #[test]
    fn an_interface_name_is_cut_to_what_the_kernel_can_hold() {
        assert_eq!(Key::new().interface("a-very-long-interface").as_bytes(), b"a-very-long-int\0");
    }
}
