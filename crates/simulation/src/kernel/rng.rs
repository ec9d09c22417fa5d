//! A small seeded generator.
//!
//! The same seed gives the same world on every machine, for ever.

/// splitmix64, with one word of state.
///
/// It is good enough to shuffle faults, and short enough to own.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for this seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        // Seeds are consecutive numbers; the first draws must not be.
        let mut rng = Rng(seed ^ 0x5851_f42d_4c95_7f2d);
        rng.next();
        rng
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`; zero if the bound is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a product is even enough for a simulation, and needs no division.
        let product = u128::from(self.next()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// A number from `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least) + 1)
    }

    /// True in `chance` of 1,000 cases.
    pub fn permille(&mut self, chance: u32) -> bool {
        chance > 0 && self.below(1000) < u64::from(chance)
    }

    /// One of the choices.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let at = self.below(choices.len() as u64);
        &choices[usize::try_from(at).unwrap_or(0)]
    }
}
