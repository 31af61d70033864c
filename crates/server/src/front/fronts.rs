//! The front ends of a shard, by their places.

use super::{FrontEnd, StreamEnd, StreamEnds};

/// Makes a front end in the thread of its shard. It is told its place there.
pub(crate) type FrontBuilder = Box<dyn FnOnce(u8) -> Box<dyn FrontEnd> + Send>;

/// The front ends of a shard.
pub(crate) struct Fronts(Vec<Box<dyn FrontEnd>>);

impl Fronts {
    pub(crate) fn new(builders: Vec<FrontBuilder>) -> Self {
        Fronts((0..).zip(builders).map(|(place, build)| build(place)).collect())
    }

    pub(crate) fn get(&mut self, front: u8) -> Option<&mut dyn FrontEnd> {
        self.0.get_mut(usize::from(front)).map(|front| &mut **front as &mut dyn FrontEnd)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn FrontEnd> {
        self.0.iter().map(|front| &**front)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn FrontEnd>> {
        self.0.iter_mut()
    }

    /// Whether something has happened that waits to be polled.
    pub(crate) fn have_events(&self) -> bool {
        self.0.iter().any(|front| front.events_waiting() > 0)
    }
}

impl StreamEnds for Fronts {
    fn count(&self) -> u8 {
        self.0.len() as u8
    }

    fn end(&mut self, front: u8) -> Option<&mut dyn StreamEnd> {
        self.0.get_mut(usize::from(front))?.streams()
    }
}
