//! Functions in use, each once for everybody who is treated by it, and the elements that say them in the kernel.
//!
//! A function never changes; who is treated otherwise is led to another. One that nobody uses any more stays until the
//! [sweep](Functions::sweep), so that nobody is led to it while it goes, and its number stands for nothing else meanwhile.

use std::sync::Arc;

use node_nft::{Element, Key};
use rustc_hash::FxHashMap;

use crate::{
    function::Function,
    l4::Decision,
    layout::{Place, code},
    mirror::Mirror,
    number,
};

/// Its number in the kernel.
pub type FunctionId = u32;

#[derive(Default)]
pub struct Functions {
    ids: FxHashMap<Arc<Function>, FunctionId>,
    known: FxHashMap<FunctionId, Known>,
    /// Those that may have no user.
    left: Vec<FunctionId>,
}

struct Known {
    function: Arc<Function>,
    users: usize,
}

impl Functions {
    pub fn acquire(&mut self, function: Function, mirror: &mut Mirror) -> FunctionId {
        if let Some(id) = self.ids.get(&function).copied() {
            self.share(id);
            return id;
        }
        let id = number::free(number::hash(&function), |number| self.known.contains_key(&number));
        elements(id, &function, |place, key, element| mirror.put(place, key, element));
        let function = Arc::new(function);
        self.ids.insert(function.clone(), id);
        self.known.insert(id, Known { function, users: 1 });
        id
    }

    /// One more user of a function that is in use.
    pub fn share(&mut self, id: FunctionId) {
        self.known.get_mut(&id).expect("functions in use are known").users += 1;
    }

    pub fn release(&mut self, id: FunctionId) {
        let known = self.known.get_mut(&id).expect("released as often as acquired");
        known.users -= 1;
        if known.users == 0 {
            self.left.push(id);
        }
    }

    /// Takes away what nobody uses any more.
    pub fn sweep(&mut self, mirror: &mut Mirror) {
        for id in std::mem::take(&mut self.left) {
            if self.known.get(&id).is_none_or(|known| known.users > 0) {
                continue;
            }
            let Some(Known { function, .. }) = self.known.remove(&id) else { continue };
            self.ids.remove(&function);
            elements(id, &function, |place, key, _| mirror.remove(place, key));
        }
    }

    pub fn get(&self, id: FunctionId) -> &Function {
        &self.known[&id].function
    }
}

fn elements(id: FunctionId, function: &Function, mut each: impl FnMut(Place, Key, Element)) {
    let start = || Key::new().mark(id);
    each(Place::Defaults, start(), value(function.default));
    for (protocol, decision) in &function.protocols {
        each(Place::Protocols, start().proto(*protocol), value(*decision));
    }
    for (protocol, port, decision) in &function.ports {
        each(Place::Ports, start().proto(*protocol).port(*port), value(*decision));
    }
    for (place, ranges) in [(Place::Ranges, &function.ranges), (Place::Sources, &function.sources)] {
        for (protocol, (low, high), decision) in ranges {
            let border = |port| start().proto(*protocol).port(port);
            each(place, border(*low), value(*decision).until(border(*high)));
        }
    }
    for (range, decision) in &function.boxes {
        let corner = |first, second| start().proto(range.protocol).port(first).port(second);
        let (low, high) = (corner(range.first.0, range.second.0), corner(range.first.1, range.second.1));
        each(Place::Boxes, low, value(*decision).until(high));
    }
}

fn value(decision: Decision) -> Element {
    Element::value(Key::new().mark(code(decision)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(port: u16) -> Function {
        let (protocols, ranges, sources, boxes) = Default::default();
        let ports = vec![(6, port, Decision::Permit)];
        Function { default: Decision::Drop, protocols, ports, ranges, sources, boxes }
    }

    #[test]
    fn what_is_the_same_is_said_once_and_stays_until_nobody_was_led_to_it_when_it_was_swept() {
        let (mut functions, mut mirror) = (Functions::default(), Mirror::default());
        let said = |mirror: &Mirror| mirror.lens(|place| *place == Place::Ports)[&Place::Ports];
        let first = functions.acquire(permit(80), &mut mirror);
        let second = functions.acquire(permit(80), &mut mirror);
        let other = functions.acquire(permit(81), &mut mirror);
        assert!(first == second && first != other);
        assert_eq!(said(&mirror), 2);
        functions.release(first);
        functions.sweep(&mut mirror);
        assert_eq!(said(&mirror), 2, "somebody is left");
        functions.release(second);
        assert_eq!(said(&mirror), 2, "not before the sweep");
        assert_eq!(functions.acquire(permit(80), &mut mirror), first, "and it may come back until then");
        functions.sweep(&mut mirror);
        assert_eq!(said(&mirror), 2);
        functions.release(first);
        functions.sweep(&mut mirror);
        assert_eq!(said(&mirror), 1);
        assert_eq!(functions.acquire(permit(80), &mut mirror), first, "the same number in every run");
    }
}
