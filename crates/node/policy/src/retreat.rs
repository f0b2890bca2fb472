//! The way back from a large change that was cut short while addresses were judged by keys aside.

use node_nft::{CurrentTable, Elements, Table};

use crate::layout::{ASIDE, Place, Way};

/// Tables to reach one after the other before the desired one, so that no packet meets a mixture: first what usually
/// holds is completed while nobody asks for it, then it is asked for again; what was aside goes last. None if nobody is
/// aside.
pub fn retreat(desired: &Table, current: &CurrentTable) -> Vec<Table> {
    let elements = |place: Place| current.sets.get(&place.name()).map(|set| &set.elements);
    let is_aside = |place: &Place| matches!(place, Place::Aside(..));
    let somebody =
        Place::all().into_iter().filter(is_aside).filter_map(elements).any(|elements| !elements.is_empty());
    if !somebody {
        return Vec::new();
    }
    let mut asked = desired.clone();
    for place in Place::all() {
        let (Some(now), Some(set)) = (elements(place), asked.sets.get_mut(&place.name())) else { continue };
        let kept: Elements = match (place, place.decides()) {
            (Place::Aside(..), _) => now.clone(),
            (_, Some(way)) => {
                let aside = now.iter().filter(|(key, _)| is_of_aside(way, key));
                aside.map(|(key, element)| (key.clone(), element.clone())).collect()
            }
            _ => continue,
        };
        set.elements.get_or_insert_default().extend(kept);
    }
    let mut unasked = asked.clone();
    for place in Place::all().into_iter().filter(is_aside) {
        if let Some(set) = unasked.sets.get_mut(&place.name()) {
            set.elements = Some(Elements::new());
        }
    }
    vec![asked, unasked]
}

fn is_of_aside(way: Way, key: &[u8]) -> bool {
    let class = key.get(way.address_len()..).and_then(|rest| rest.first_chunk());
    class.is_some_and(|class| u32::from_ne_bytes(*class) & ASIDE != 0)
}
