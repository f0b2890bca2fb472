//! A volume against a plain array, and its accounting against its file.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{account::Account, allocation::Allocation, cipher::Cipher};

const SIZE: u64 = 64 * BLOCK;

fn volume(limit: u64) -> (Arc<Volume>, Arc<Account>, tempfile::TempDir) {
    volume_with(limit, None)
}

fn cipher() -> Option<Arc<Cipher>> {
    Some(Arc::new(Cipher::new(&std::array::from_fn(|at| at as u8)).unwrap()))
}

fn volume_with(limit: u64, cipher: Option<Arc<Cipher>>) -> (Arc<Volume>, Arc<Account>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v");
    create_file(&path, SIZE).unwrap();
    let account = Arc::new(Account::default());
    account.set_limit(limit).unwrap();
    let volume = Volume::open("v", &path, Arc::clone(&account), cipher).unwrap();
    (Arc::new(volume), account, dir)
}

/// Bytes the file system says hold data, in whole blocks.
fn held(volume: &Volume) -> u64 {
    let mut map = Allocation::default();
    let ranges = syscalls::data_ranges(&volume.file(), 0, SIZE).unwrap();
    ranges.into_iter().map(|range| map.claim(touched(range.start, range.end - range.start)) * BLOCK).sum()
}

#[test]
fn the_grant_can_be_filled_to_the_last_byte_and_not_one_further() {
    let (volume, account, _dir) = volume(4 * BLOCK);
    volume.write(0, &[1; 4 * BLOCK as usize], false).unwrap();
    assert_eq!(volume.write(4 * BLOCK, &[1], false), Err(Errno::NoSpace));
    volume.write(0, &[2; 4 * BLOCK as usize], false).unwrap();
    account.set_limit(5 * BLOCK).unwrap();
    volume.write(4 * BLOCK, &[1], false).unwrap();
    assert_eq!(account.balance().used, held(&volume));
}

#[test]
fn a_write_over_the_limit_changes_nothing() {
    let (volume, account, _dir) = volume(2 * BLOCK);
    volume.write(0, &[1; BLOCK as usize], false).unwrap();
    assert_eq!(volume.write(0, &[9; 3 * BLOCK as usize], false), Err(Errno::NoSpace));
    let mut back = [0; BLOCK as usize];
    volume.read(0, &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 1));
    assert_eq!(account.balance().used, BLOCK);
}

#[test]
fn trimming_gives_capacity_back_and_zeroes_with_keep_take_it() {
    let (volume, account, _dir) = volume(8 * BLOCK);
    volume.write(0, &[1; 8 * BLOCK as usize], false).unwrap();
    volume.trim(1, 3 * BLOCK).unwrap();
    assert_eq!(account.balance().used, 6 * BLOCK, "only the two whole blocks go");
    volume.write_zeroes(0, 8 * BLOCK, false).unwrap();
    assert_eq!((account.balance().used, held(&volume)), (0, 0));
    volume.write_zeroes(BLOCK, 2 * BLOCK, true).unwrap();
    assert_eq!((account.balance().used, held(&volume)), (2 * BLOCK, 2 * BLOCK));
    assert_eq!(volume.write_zeroes(0, 9 * BLOCK, true), Err(Errno::NoSpace));
    assert_eq!(account.balance().used, 2 * BLOCK);
}

#[test]
fn a_write_that_never_arrives_whole_gives_back_what_it_did_not_use() {
    let (volume, account, _dir) = volume(4 * BLOCK);
    let ahead = volume.claim_ahead(0, 4 * BLOCK).unwrap();
    assert!(volume.claim_ahead(8 * BLOCK, 1).is_err());
    volume.write(0, &[1; BLOCK as usize], false).unwrap();
    drop(ahead);
    assert_eq!(account.balance().used, BLOCK);
    let ahead = volume.claim_ahead(0, 2 * BLOCK).unwrap();
    volume.write(0, &[1; 2 * BLOCK as usize], false).unwrap();
    ahead.complete();
    drop(ahead);
    assert_eq!((account.balance().used, held(&volume)), (2 * BLOCK, 2 * BLOCK));
}

#[test]
fn a_closed_volume_refuses_everything() {
    let (volume, _, _dir) = volume(SIZE);
    volume.retire();
    assert_eq!(volume.write(0, &[1], false), Err(Errno::Shutdown));
    assert_eq!(volume.read(0, &mut [0]), Err(Errno::Shutdown));
    assert_eq!(volume.try_read(0, &mut [0]), Err(Errno::Shutdown));
    assert_eq!(volume.flush(), Err(Errno::Shutdown));
    assert_eq!(volume.trim(0, BLOCK), Err(Errno::Shutdown));
}

#[test]
fn books_end_with_the_volume() {
    let (volume, account, dir) = volume(SIZE);
    volume.write(0, &[1; 3 * BLOCK as usize], false).unwrap();
    let ahead = volume.claim_ahead(0, SIZE).unwrap();
    volume.retire();
    volume.top().close();
    drop(ahead);
    assert_eq!(account.balance().used, 0, "what was claimed ahead does not come back to a closed volume");
    Volume::open("v", &dir.path().join("v"), Arc::clone(&account), None).unwrap();
    assert_eq!(account.balance().used, 3 * BLOCK);
}

#[test]
fn after_a_failed_flush_nothing_more_is_acknowledged() {
    let (volume, _, _dir) = volume(SIZE);
    volume.flush().unwrap();
    volume.broken.store(true, Ordering::Release);
    assert_eq!(volume.write(0, &[1], false), Err(Errno::Io));
    assert_eq!(volume.flush(), Err(Errno::Io));
    assert_eq!(volume.read(0, &mut [0]), Ok(()));
}

#[test]
fn a_recount_finds_what_is_really_there() {
    let (volume, account, _dir) = volume(SIZE);
    volume.write(0, &[1; 4 * BLOCK as usize], false).unwrap();
    // Marked but never written, and written but not marked.
    volume.top().claim(10..20).unwrap();
    syscalls::write_all(&volume.file(), 30 * BLOCK, &[1; BLOCK as usize], false).unwrap();
    volume.recount(0..64);
    assert_eq!((account.balance().used, held(&volume)), (5 * BLOCK, 5 * BLOCK));
}

#[test]
fn many_threads_never_cross_the_limit_and_leave_exact_books() {
    let limit = 20 * BLOCK;
    let (volume, account, _dir) = volume(limit);
    std::thread::scope(|scope| {
        for thread in 0u64..4 {
            let (volume, account) = (&volume, &account);
            scope.spawn(move || {
                for round in 0..400u64 {
                    let block = (round * 7 + thread * 13) % 64;
                    if (round + thread) % 3 == 0 {
                        volume.trim(block * BLOCK, 3 * BLOCK.min(SIZE - block * BLOCK)).ok();
                    } else {
                        let _ = volume.write(block * BLOCK, &[1; BLOCK as usize], false);
                    }
                    assert!(account.balance().used <= limit);
                }
            });
        }
    });
    assert_eq!(account.balance().used, held(&volume));
}

#[test]
fn of_an_encrypted_volume_the_disk_has_neither_data_nor_what_is_not_there() {
    let (volume, account, dir) = volume_with(SIZE, cipher());
    let text = b"forty-two bytes that nobody is to read ...";
    for at in [0, 5 * BLOCK + 100, 9 * BLOCK - 20] {
        volume.write(at, text, at == 0).unwrap();
        let mut back = [0; 42];
        volume.read(at, &mut back).unwrap();
        assert_eq!(&back, text);
    }
    let file = std::fs::read(dir.path().join("v")).unwrap();
    assert!(!file.windows(8).any(|part| text.windows(8).any(|ours| ours == part)));
    assert_eq!((account.balance().used, held(&volume)), (4 * BLOCK, 4 * BLOCK), "holes are holes");
    // Blocks that hold nothing yet read as zeroes: set apart by the file system, or claimed for a write on its way.
    syscalls::write_all(&volume.file(), 20 * BLOCK, &[0; BLOCK as usize], false).unwrap();
    volume.recount(20..21);
    let _ahead = volume.claim_ahead(21 * BLOCK, BLOCK).unwrap();
    let mut back = [1; 2 * BLOCK as usize];
    volume.read(20 * BLOCK, &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 0) && !volume.is_hole(20 * BLOCK, 2 * BLOCK));
    assert!(!volume.is_flat(), "it is not sent as it is");
}

#[test]
fn what_many_write_into_one_encrypted_block_is_all_there() {
    let (volume, _, _dir) = volume_with(SIZE, cipher());
    std::thread::scope(|scope| {
        for thread in 0u8..4 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 1..=200u8 {
                    // Each has a quarter of the first block, and all of a block beside it.
                    volume.write(u64::from(thread) * 1024, &[round; 1024], false).unwrap();
                    let at = BLOCK * (1 + u64::from(thread));
                    volume.write(at, &[round; BLOCK as usize], false).unwrap();
                    let mut back = [0; 1024];
                    volume.read(u64::from(thread) * 1024, &mut back).unwrap();
                    assert!(back.iter().all(|byte| *byte == round));
                }
            });
        }
    });
    let mut back = [0; 5 * BLOCK as usize];
    volume.read(0, &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 200));
}

#[test]
fn an_encrypted_write_over_the_limit_changes_nothing_either() {
    let (volume, account, _dir) = volume_with(2 * BLOCK, cipher());
    volume.write(0, &[1; BLOCK as usize], false).unwrap();
    assert_eq!(volume.write(100, &[9; 3 * BLOCK as usize], false), Err(Errno::NoSpace));
    let mut back = [0; BLOCK as usize];
    volume.read(0, &mut back).unwrap();
    assert!(back.iter().all(|byte| *byte == 1));
    assert_eq!(account.balance().used, BLOCK);
}

#[derive(Clone, Debug)]
enum Operation {
    Write(u64, u64, u8),
    Trim(u64, u64),
    Zero(u64, u64, bool),
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let range = (0..SIZE, 1..6 * BLOCK).prop_map(|(offset, len)| (offset, len.min(SIZE - offset)));
    prop_oneof![
        5 => (range.clone(), 1u8..).prop_map(|((o, l), byte)| Operation::Write(o, l, byte)),
        2 => range.clone().prop_map(|(o, l)| Operation::Trim(o, l)),
        2 => (range, any::<bool>()).prop_map(|((o, l), keep)| Operation::Zero(o, l, keep)),
        1 => Just(Operation::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn contents_and_books_are_right_after_any_operations(
        operations in proptest::collection::vec(operation(), 1..40),
        encrypted in any::<bool>(),
    ) {
        let limit = 24 * BLOCK;
        let cipher = cipher().filter(|_| encrypted);
        let (mut volume, mut account, dir) = volume_with(limit, cipher.clone());
        let mut model = vec![0u8; SIZE as usize];
        for operation in operations {
            match operation {
                Operation::Write(offset, len, byte) => {
                    if volume.write(offset, &vec![byte; len as usize], false).is_ok() {
                        model[offset as usize..(offset + len) as usize].fill(byte);
                    }
                }
                Operation::Trim(offset, len) => {
                    volume.trim(offset, len).unwrap();
                    let blocks = whole(offset, len);
                    model[(blocks.start * BLOCK) as usize..(blocks.end * BLOCK) as usize].fill(0);
                }
                Operation::Zero(offset, len, keep) => {
                    if volume.write_zeroes(offset, len, keep).is_ok() {
                        model[offset as usize..(offset + len) as usize].fill(0);
                    }
                }
                Operation::Reopen => {
                    let before = account.balance();
                    account = Arc::new(Account::default());
                    account.restore_limit(limit);
                    let path = dir.path().join("v");
                    let opened = Volume::open("v", &path, Arc::clone(&account), cipher.clone()).unwrap();
                    volume = Arc::new(opened);
                    prop_assert_eq!(account.balance(), before, "accounting survives a restart");
                }
            }
            prop_assert!(account.balance().used <= limit);
            prop_assert_eq!(account.balance().used, held(&volume));
        }
        let mut back = vec![1u8; SIZE as usize];
        volume.read(0, &mut back).unwrap();
        prop_assert!(back == model);
        let mut piecewise = vec![1u8; SIZE as usize];
        for (at, piece) in piecewise.chunks_mut(1000).enumerate() {
            if !volume.try_read(at as u64 * 1000, piece).unwrap() {
                volume.read(at as u64 * 1000, piece).unwrap();
            }
        }
        prop_assert!(piecewise == model);
        let total: u64 = volume.extents(0, SIZE as u32, usize::MAX).iter().map(|(len, _)| u64::from(*len)).sum();
        prop_assert_eq!(total, SIZE);
    }
}
