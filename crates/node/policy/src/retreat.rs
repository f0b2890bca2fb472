//! The way back from a large change that was cut short while addresses were judged by keys aside.

use node_nft::{CurrentTable, Elements, Table};

use crate::layout::{Place, Way};

/// Bytes of a class in a key.
const CLASS: usize = 4;

/// Tables to reach one after the other before the desired one, so that no packet meets a mixture: first what usually
/// holds is completed while nobody asks for it; then it is asked for again, by the classes that it knows; what was aside
/// goes last. None if nobody is aside.
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
            _ if place.is_of_peers() => {
                set.elements = None;
                now.clone()
            }
            (Place::Aside(..), _) => now.clone(),
            // Those of whoever is still led to them; what has the same number says the same.
            _ if place.is_of_functions() => {
                let is_wanted =
                    |key: &[u8]| set.elements.as_ref().is_some_and(|wanted| wanted.contains_key(key));
                let others = now.iter().filter(|(key, _)| !is_wanted(key));
                others.map(|(key, element)| (key.clone(), element.clone())).collect()
            }
            (_, Some(way)) => {
                let kept = now.iter().filter(|(key, _)| !is_known(desired, way, key));
                kept.map(|(key, element)| (key.clone(), element.clone())).collect()
            }
            _ => continue,
        };
        set.elements.get_or_insert_default().extend(kept);
    }
    let mut unasked = asked.clone();
    for place in Place::all().into_iter().filter(|place| is_aside(place) || place.is_of_peers()) {
        if let (Some(set), Some(wanted)) =
            (unasked.sets.get_mut(&place.name()), desired.sets.get(&place.name()))
        {
            set.elements.clone_from(&wanted.elements);
        }
    }
    vec![asked, unasked]
}

/// Whether the desired table decides about the workload and class of this key: what it does not, may be asked for until
/// nobody is of that class any more.
fn is_known(desired: &Table, way: Way, key: &[u8]) -> bool {
    let elements = desired.sets.get(&way.place().name());
    let pair = key.get(..way.address_len() + CLASS);
    let elements = elements.and_then(|set| set.elements.as_ref());
    elements.zip(pair).is_some_and(|(elements, pair)| elements.contains_key(pair))
}
