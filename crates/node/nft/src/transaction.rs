//! Changes of a table, and which of them become true at once.

use crate::{BaseChain, Element, Rule, SetSchema};

/// One change of a table.
#[derive(Clone, Debug)]
pub enum Op {
    AddTable,
    DeleteTable,
    AddChain {
        name: String,
        base: Option<BaseChain>,
    },
    DeleteChain {
        name: String,
    },
    /// Removes the chain's rules.
    FlushChain {
        name: String,
    },
    AddRule {
        chain: String,
        rule: Rule,
    },
    AddSet {
        name: String,
        schema: SetSchema,
    },
    DeleteSet {
        name: String,
    },
    AddElements {
        set: String,
        schema: SetSchema,
        elements: Vec<(Box<[u8]>, Element)>,
    },
    DeleteElements {
        set: String,
        schema: SetSchema,
        elements: Vec<(Box<[u8]>, Element)>,
    },
}

impl Op {
    /// Elements that the operation touches in the kernel, where a range of one field is two; an operation on anything
    /// else counts as one.
    pub fn weight(&self) -> usize {
        match self {
            Self::AddElements { schema, elements, .. } | Self::DeleteElements { schema, elements, .. } => {
                elements.len() * schema.element_weight()
            }
            _ => 1,
        }
    }

    /// The elements it adds or removes.
    pub fn elements(&self) -> &[(Box<[u8]>, Element)] {
        match self {
            Self::AddElements { elements, .. } | Self::DeleteElements { elements, .. } => elements,
            _ => &[],
        }
    }

    /// The set whose elements it adds or removes.
    pub fn set(&self) -> Option<&str> {
        match self {
            Self::AddElements { set, .. } | Self::DeleteElements { set, .. } => Some(set),
            _ => None,
        }
    }

    /// One operation for each element; one without elements stays as it is.
    pub fn apart(self) -> Vec<Self> {
        match self {
            Self::AddElements { set, schema, elements } => elements
                .into_iter()
                .map(|one| Self::AddElements {
                    set: set.clone(),
                    schema: schema.clone(),
                    elements: vec![one],
                })
                .collect(),
            Self::DeleteElements { set, schema, elements } => elements
                .into_iter()
                .map(|one| Self::DeleteElements {
                    set: set.clone(),
                    schema: schema.clone(),
                    elements: vec![one],
                })
                .collect(),
            other => vec![other],
        }
    }

    /// Both add elements, or both remove some.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::AddElements { .. }, Self::AddElements { .. })
                | (Self::DeleteElements { .. }, Self::DeleteElements { .. })
        )
    }

    pub(crate) fn is_of_same_set(&self, other: &Self) -> bool {
        self.set().is_some() && self.set() == other.set()
    }

    /// Takes over the elements of another operation.
    pub(crate) fn join(&mut self, other: Self) {
        if let (
            Self::AddElements { elements, .. } | Self::DeleteElements { elements, .. },
            Self::AddElements { elements: mut more, .. } | Self::DeleteElements { elements: mut more, .. },
        ) = (self, other)
        {
            elements.append(&mut more);
        }
    }

    /// An operation on the first so many elements, and one on the others. One without elements counts as one.
    pub(crate) fn split_at(mut self, count: usize) -> (Option<Self>, Option<Self>) {
        let (Self::AddElements { elements, set, schema } | Self::DeleteElements { elements, set, schema }) =
            &mut self
        else {
            return if count > 0 { (Some(self), None) } else { (None, Some(self)) };
        };
        let rest = elements.split_off(count.min(elements.len()));
        let (empty, set, schema) = (elements.is_empty(), set.clone(), schema.clone());
        let more = match &self {
            Self::AddElements { .. } => Self::AddElements { set, schema, elements: rest },
            _ => Self::DeleteElements { set, schema, elements: rest },
        };
        let some = !more.elements().is_empty();
        ((!empty).then_some(self), some.then_some(more))
    }

    /// What the operation is about, for errors.
    pub fn describe(&self) -> String {
        match self {
            Self::AddTable => "add the table".into(),
            Self::DeleteTable => "delete the table".into(),
            Self::AddChain { name, .. } => format!("add chain {name}"),
            Self::DeleteChain { name } => format!("delete chain {name}"),
            Self::FlushChain { name } => format!("flush chain {name}"),
            Self::AddRule { chain, rule } => format!("add rule \"{}\" to chain {chain}", rule.comment),
            Self::AddSet { name, .. } => format!("add set {name}"),
            Self::DeleteSet { name } => format!("delete set {name}"),
            Self::AddElements { set, elements, .. } => {
                format!("add {} elements to set {set}", elements.len())
            }
            Self::DeleteElements { set, elements, .. } => {
                format!("delete {} elements of set {set}", elements.len())
            }
        }
    }
}

/// Operations that become true at once, or not at all.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub ops: Vec<Op>,
}

impl Transaction {
    /// Appends, joining elements to those of the same set right before them.
    pub fn push(&mut self, op: Op) {
        match self.ops.last_mut() {
            Some(last) if last.is_like(&op) && last.is_of_same_set(&op) => last.join(op),
            _ => self.ops.push(op),
        }
    }
}
