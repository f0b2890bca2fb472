//! The map against a set of block numbers.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[test]
fn a_full_chunk_takes_no_bitmap_and_an_empty_one_no_entry() {
    let mut map = Allocation::default();
    assert_eq!(map.claim(0..CHUNK * 2), CHUNK * 2);
    assert!(map.chunks.values().all(|chunk| matches!(chunk, Chunk::Full)));
    assert_eq!(map.release(5..6), 1);
    assert_eq!(map.holes(0..CHUNK * 2), 1);
    assert_eq!(map.release(0..CHUNK * 2), CHUNK * 2 - 1);
    assert!(map.chunks.is_empty());
}

#[test]
fn runs_join_across_chunks_and_stop_at_the_limit() {
    let mut map = Allocation::default();
    map.claim(CHUNK - 3..CHUNK + 70);
    let data = |blocks| Run { blocks, data: true };
    let hole = |blocks| Run { blocks, data: false };
    assert_eq!(map.runs(0..CHUNK * 3, 9), [hole(CHUNK - 3), data(73), hole(CHUNK * 2 - 70)]);
    assert_eq!(map.runs(0..CHUNK * 3, 1), [hole(CHUNK - 3)]);
    assert_eq!(map.runs(CHUNK..CHUNK + 1, 9), [data(1)]);
    assert_eq!(map.runs(7..7, 9), []);
}

proptest! {
    // The set is slow in a debug build, and each case visits every kind of border.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_map_agrees_with_a_set(operations in proptest::collection::vec((0u8..3, 0u64..3 * CHUNK, 0u64..CHUNK + 200), 1..24)) {
        let mut map = Allocation::default();
        let mut set = BTreeSet::new();
        for (kind, start, len) in operations {
            let range = start..start + len;
            let held = set.range(range.clone()).count() as u64;
            match kind {
                0 => {
                    prop_assert_eq!(map.claim(range.clone()), len - held);
                    set.extend(range.clone());
                }
                1 => {
                    prop_assert_eq!(map.release(range.clone()), held);
                    range.clone().for_each(|block| { set.remove(&block); });
                }
                _ => {}
            }
            let held = set.range(range.clone()).count() as u64;
            prop_assert_eq!(map.holes(range.clone()), len - held);
            let runs = map.runs(range.clone(), usize::MAX);
            prop_assert_eq!(runs.iter().map(|run| run.blocks).sum::<u64>(), len);
            prop_assert_eq!(runs.iter().filter(|run| run.data).map(|run| run.blocks).sum::<u64>(), held);
            prop_assert!(runs.windows(2).all(|pair| pair[0].data != pair[1].data));
        }
    }
}

#[test]
fn the_end_is_one_past_the_last_block_of_data() {
    let mut map = Allocation::default();
    assert_eq!(map.end(), 0);
    for block in [0, 63, 64, 65, CHUNK - 1, CHUNK, 3 * CHUNK + 130] {
        map.claim(block..block + 1);
        assert_eq!(map.end(), block + 1);
    }
    map.release(CHUNK + 1..4 * CHUNK);
    assert_eq!(map.end(), CHUNK + 1);
    map.claim(0..2 * CHUNK);
    assert_eq!(map.end(), 2 * CHUNK);
}
