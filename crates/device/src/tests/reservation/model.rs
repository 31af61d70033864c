//! A model of persistent reservations that is nothing but arrays, and random orders for both.

use super::*;
use crate::testing::ports;
use proptest::prelude::*;
use sanwire_scsi::Extent;

const NEXUSES: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Order {
    by: usize,
    action: u8,
    kind: u8,
    key: u64,
    action_key: u64,
    to: usize,
    unregister: bool,
}

fn order() -> impl Strategy<Value = Order> {
    let kind = prop::sample::select(vec![1u8, 3, 5, 6, 7, 8]);
    (0..NEXUSES, 0u8..8, kind, 0u64..4, 0u64..4, 0..NEXUSES, any::<bool>()).prop_map(
        |(by, action, kind, key, action_key, to, unregister)| Order {
            by,
            action,
            kind,
            key,
            action_key,
            to,
            unregister,
        },
    )
}

/// Each nexus with its key, zero for none; the type held, and by whom.
#[derive(Default, Debug)]
struct Model {
    keys: [u64; NEXUSES],
    held: Option<(u8, usize)>,
    generation: u32,
}

impl Model {
    fn holds(&self, nexus: usize) -> bool {
        self.held.is_some_and(|(kind, by)| self.keys[nexus] != 0 && (kind >= 7 || by == nexus))
    }

    fn apply(&mut self, order: &Order) -> Status {
        let &Order { by, action, key, action_key, .. } = order;
        let ignores = action == REGISTER_AND_IGNORE;
        if action == REGISTER || ignores {
            if !ignores && key != self.keys[by] {
                return Status::ReservationConflict;
            }
            if self.keys[by] != 0 || action_key != 0 {
                self.generation += 1;
                self.keys[by] = action_key;
                self.drop_if_unheld();
            }
            return Status::Good;
        }
        if action == REGISTER_AND_MOVE && action_key == 0 {
            return Status::CheckCondition;
        }
        if self.keys[by] == 0 || self.keys[by] != key {
            return Status::ReservationConflict;
        }
        self.apply_registered(order)
    }

    fn apply_registered(&mut self, order: &Order) -> Status {
        let &Order { by, action, kind, action_key, to, unregister, .. } = order;
        match (action, self.held) {
            (RESERVE, None) => self.held = Some((kind, by)),
            (RESERVE, Some((held, _))) if held != kind || !self.holds(by) => return Status::ReservationConflict,
            (RELEASE, Some((held, _))) if self.holds(by) && held != kind => return Status::CheckCondition,
            (RELEASE, Some(_)) if self.holds(by) => self.held = None,
            (RESERVE | RELEASE, _) => {}
            (CLEAR, _) => {
                self.generation += 1;
                (self.keys, self.held) = ([0; NEXUSES], None);
            }
            (REGISTER_AND_MOVE, Some((held, holder))) if held < 7 && holder == by => {
                if to == by {
                    return Status::CheckCondition;
                }
                self.generation += 1;
                self.held = Some((held, to));
                self.keys[to] = action_key;
                if unregister {
                    self.keys[by] = 0;
                }
            }
            (REGISTER_AND_MOVE, _) => return Status::ReservationConflict,
            _ => return self.preempt(by, kind, action_key),
        }
        Status::Good
    }

    fn preempt(&mut self, by: usize, kind: u8, victims: u64) -> Status {
        let of_all = self.held.is_some_and(|(held, _)| held >= 7);
        let takes_over = match self.held {
            Some((_, holder)) if !of_all => victims != 0 && self.keys[holder] == victims,
            Some(_) => victims == 0,
            None => false,
        };
        if victims == 0 && !takes_over {
            return Status::CheckCondition;
        }
        let mut struck = 0;
        for nexus in 0..NEXUSES {
            let is_named = self.keys[nexus] != 0 && (victims == 0 || self.keys[nexus] == victims);
            if is_named && !(nexus == by && (takes_over || of_all)) {
                self.keys[nexus] = 0;
                struck += 1;
            }
        }
        if struck == 0 && !takes_over {
            return Status::ReservationConflict;
        }
        self.generation += 1;
        if takes_over {
            self.held = Some((kind, by));
        }
        Status::Good
    }

    fn drop_if_unheld(&mut self) {
        self.held = self
            .held
            .filter(|(kind, by)| if *kind >= 7 { self.keys.iter().any(|key| *key != 0) } else { self.keys[*by] != 0 });
    }

    fn may(&self, nexus: usize, is_write: bool) -> bool {
        let Some((kind, _)) = self.held else { return true };
        let is_registered = self.keys[nexus] != 0;
        self.holds(nexus) || (kind >= 5 && is_registered) || (!is_write && matches!(kind, 1 | 5 | 7))
    }
}

fn nexus(index: usize) -> NexusId {
    [ONE, TWO, THREE][index]
}

fn check(world: &World, model: &Model, order: &Order) {
    let &Order { by, action, kind, key, action_key, to, unregister } = order;
    let parameters = if action == REGISTER_AND_MOVE {
        move_list((key, action_key), u8::from(unregister) << 1, 1, &ports(nexus(to).0, 1).initiator)
    } else {
        list(key, action_key, 0)
    };
    // Not judged here: the sender may still be owed an attention.
    while told(world, nexus(by)).is_some() {}
    let mut next = Model { ..*model };
    assert_eq!(send(world, nexus(by), action, kind, &parameters).status, next.apply(order), "{order:?} on {model:?}");
    let mut expected: Vec<u64> = next.keys.into_iter().filter(|key| *key != 0).collect();
    expected.sort_unstable();
    let mut actual = keys(world);
    actual.sort_unstable();
    assert_eq!((actual, ask(world, 0).0), (expected, next.generation), "{order:?} on {model:?}");
    let held_by = next.held.map(|(kind, by)| (if kind >= 7 { 0 } else { next.keys[by] }, kind));
    assert_eq!(held(world), held_by, "{order:?} on {model:?}");
    for index in 0..NEXUSES {
        while told(world, nexus(index)).is_some() {}
        let extent = Extent { lba: 0, blocks: 1 };
        let read = world.run(nexus(index), build::read_16(extent), &[]).status == Status::Good;
        let write = world.run(nexus(index), build::write_16(extent, false), &[0; 512]).status == Status::Good;
        assert_eq!((read, write), (next.may(index, false), next.may(index, true)), "nexus {index}: {order:?} {next:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_orders_do_what_the_model_does(orders in prop::collection::vec(order(), 1..80)) {
        let world = world();
        let mut model = Model::default();
        for order in &orders {
            check(&world, &model, order);
            model.apply(order);
        }
    }
}
