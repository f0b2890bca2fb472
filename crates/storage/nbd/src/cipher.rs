//! AES-256-XTS over blocks of 4096 bytes, as disks are encrypted.
//!
//! In: a key, blocks with their numbers. Out: the same blocks, encrypted or decrypted. Holds: the key, expanded. Not here:
//! where keys are kept (`keys`), what is a hole (`medium`).
//!
//! The number of a block in its volume is its tweak, 16 bytes with the least significant first: what dm-crypt calls `plain64`
//! with sectors of 4096 bytes. Nothing is authenticated, as in every encryption that keeps the size: what somebody changed on
//! the disk decrypts to noise in the 16 bytes concerned.

#![allow(
    unsafe_code,
    reason = "aws-lc-rs, whose library this is, does not offer XTS; every call of it is in this file"
)]

use std::ptr::{self, NonNull};

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_copy, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CipherInit_ex,
    EVP_CipherUpdate, EVP_aes_256_xts,
};

use crate::allocation::BLOCK;

/// Two keys of AES-256: one for the data, one for the tweak.
pub(crate) const KEY: usize = 64;

/// A key that blocks are encrypted with.
pub(crate) struct Cipher {
    encrypting: Context,
    decrypting: Context,
}

/// The key cannot be used: its halves are the same, or there is no memory.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key cannot be used")]
pub(crate) struct UnusableKey;

/// A key, expanded for one direction, and the tweak of the block that is worked on.
struct Context(NonNull<EVP_CIPHER_CTX>);

// SAFETY: a context is memory without ties to a thread.
unsafe impl Send for Context {}
// SAFETY: what is shared is only copied from, which reads it.
unsafe impl Sync for Context {}

impl Context {
    fn empty() -> Result<Self, UnusableKey> {
        // SAFETY: it has no preconditions, and null says that there is no memory.
        NonNull::new(unsafe { EVP_CIPHER_CTX_new() }).map(Self).ok_or(UnusableKey)
    }

    fn new(key: &[u8; KEY], encrypting: bool) -> Result<Self, UnusableKey> {
        let context = Self::empty()?;
        // SAFETY: the context is valid, the cipher is a constant of the library, and its key has 64 bytes.
        let done = unsafe {
            EVP_CipherInit_ex(
                context.0.as_ptr(),
                EVP_aes_256_xts(),
                ptr::null_mut(),
                key.as_ptr(),
                ptr::null(),
                encrypting.into(),
            )
        };
        if done == 1 { Ok(context) } else { Err(UnusableKey) }
    }

    /// One to work with; this one stays as it is.
    fn copy(&self) -> Self {
        let copy = Self::empty().expect("there is memory for some hundred bytes");
        // SAFETY: both contexts are valid, and this one is only read.
        let done = unsafe { EVP_CIPHER_CTX_copy(copy.0.as_ptr(), self.0.as_ptr()) };
        assert_eq!(done, 1, "a context with a key can be copied while there is memory");
        copy
    }

    /// Encrypts or decrypts one block in its place.
    fn block(&mut self, number: u64, block: &mut [u8]) {
        let mut tweak = [0; 16];
        tweak[..8].copy_from_slice(&number.to_le_bytes());
        let (mut written, length) = (0, i32::try_from(block.len()).expect("a block is small"));
        // SAFETY: the context is valid and has its key, the tweak has the 16 bytes of an XTS tweak, -1 keeps the direction.
        let begun = unsafe {
            EVP_CipherInit_ex(self.0.as_ptr(), ptr::null(), ptr::null_mut(), ptr::null(), tweak.as_ptr(), -1)
        };
        // SAFETY: a block is written over itself, which this cipher may do, and its length stays the same.
        let done = unsafe {
            EVP_CipherUpdate(self.0.as_ptr(), block.as_mut_ptr(), &mut written, block.as_ptr(), length)
        };
        assert!(begun == 1 && done == 1 && written == length, "a whole block and a good key cannot fail");
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was made by the library, is freed once, and wiped by this.
        unsafe { EVP_CIPHER_CTX_free(self.0.as_ptr()) }
    }
}

impl Cipher {
    pub(crate) fn new(key: &[u8; KEY]) -> Result<Self, UnusableKey> {
        Ok(Self { encrypting: Context::new(key, true)?, decrypting: Context::new(key, false)? })
    }

    /// Encrypts whole blocks, of which the first has this number.
    pub(crate) fn encrypt(&self, first: u64, blocks: &mut [u8]) {
        let mut context = self.encrypting.copy();
        for (number, block) in (first..).zip(each(blocks)) {
            context.block(number, block);
        }
    }

    /// Decrypts whole blocks, of which the first has this number. A block of zeroes was never written, and stays one: none
    /// encrypts to that.
    pub(crate) fn decrypt(&self, first: u64, blocks: &mut [u8]) {
        let mut context = None;
        for (number, block) in (first..).zip(each(blocks)) {
            if block.iter().any(|byte| *byte != 0) {
                context.get_or_insert_with(|| self.decrypting.copy()).block(number, block);
            }
        }
    }
}

fn each(blocks: &mut [u8]) -> impl Iterator<Item = &mut [u8]> {
    debug_assert!(blocks.len().is_multiple_of(BLOCK as usize), "whole blocks only");
    blocks.chunks_exact_mut(BLOCK as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    /// IEEE 1619, vector 10: data unit 0xff, 512 bytes of 00 to ff twice. What is worked on is as long as it is there.
    #[test]
    fn it_is_the_standards_xts() {
        let key = hex(concat!(
            "2718281828459045235360287471352662497757247093699959574966967627",
            "3141592653589793238462643383279502884197169399375105820974944592"
        ));
        let mut unit: Vec<u8> = (0..=255).chain(0..=255).collect();
        let clear = unit.clone();
        let key = key.try_into().unwrap();
        let mut context = Context::new(&key, true).unwrap().copy();
        context.block(0xff, &mut unit);
        assert_eq!(unit[..32], hex("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b"));
        assert_eq!(unit[496..], hex("c4f36ffda9fcea70b9c6e693e148c151"));
        Context::new(&key, false).unwrap().copy().block(0xff, &mut unit);
        assert_eq!(unit, clear);
    }

    #[test]
    fn the_same_block_elsewhere_or_under_another_key_is_another() {
        let cipher = |seed: u8| {
            let key: [u8; KEY] = std::array::from_fn(|at| seed.wrapping_add(at as u8));
            Cipher::new(&key).unwrap()
        };
        let encrypted = |cipher: &Cipher, first| {
            let mut blocks = vec![7; 2 * BLOCK as usize];
            cipher.encrypt(first, &mut blocks);
            blocks
        };
        let here = encrypted(&cipher(1), 5);
        assert!(here[..4096] != here[4096..]);
        assert!(here != encrypted(&cipher(2), 5) && here[..4096] != encrypted(&cipher(1), 6)[..4096]);
        assert!(here[4096..] == encrypted(&cipher(1), 6)[..4096]);
        let mut back = here;
        cipher(1).decrypt(5, &mut back);
        assert!(back.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn what_was_never_written_is_zero() {
        let cipher = Cipher::new(&std::array::from_fn(|at| at as u8)).unwrap();
        let mut blocks = vec![0; 3 * BLOCK as usize];
        blocks[4096..8192].fill(9);
        cipher.encrypt(1, &mut blocks[4096..8192]);
        cipher.decrypt(0, &mut blocks);
        assert!(blocks[..4096].iter().all(|byte| *byte == 0) && blocks[8192..].iter().all(|byte| *byte == 0));
        assert!(blocks[4096..8192].iter().all(|byte| *byte == 9));
        // Zeroes that were written are encrypted like anything else.
        let mut zeroes = vec![0; 4096];
        cipher.encrypt(0, &mut zeroes);
        assert!(zeroes.iter().any(|byte| *byte != 0));
    }

    #[test]
    fn a_key_of_two_equal_halves_is_none() {
        assert!(Cipher::new(&[3; KEY]).is_err());
    }
}
