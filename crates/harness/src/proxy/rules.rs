use super::Direction;
use std::time::Duration;

/// The current faults of connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    /// Grows with every change, so that its caller can wait until it is applied.
    pub(super) generation: u64,
    pub(super) cut: bool,
    /// Connections accepted before this last grew are reset.
    pub(super) severed: u64,
    to_server: Flow,
    to_client: Flow,
}

/// The current faults of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) held: bool,
    pub(super) delay: Duration,
}

impl Rules {
    pub(super) fn flow(&self, direction: Direction) -> Flow {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    pub(super) fn flow_mut(&mut self, direction: Direction) -> &mut Flow {
        match direction {
            Direction::ToServer => &mut self.to_server,
            Direction::ToClient => &mut self.to_client,
        }
    }

    pub(super) fn heal(&mut self) {
        let Rules { generation, severed, .. } = *self;
        *self = Rules { generation, severed, ..Rules::default() };
    }
}
