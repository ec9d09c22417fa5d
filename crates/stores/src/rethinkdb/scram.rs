//! The client's side of SCRAM-SHA-256 (RFC 5802 and 7677).

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use ring::{digest, hmac, pbkdf2};

/// The most rounds of hashing. A server that asks for more wants our time, not our password.
const MOST_ITERATIONS: u32 = 200_000;
/// "n,," in base64: no channel binding.
const NO_BINDING: &str = "c=biws";

/// Why a server is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Distrust {
    /// Its message does not follow the protocol.
    #[error("the server's login message makes no sense")]
    Garbled,
    /// Its nonce is not our nonce with something added.
    #[error("the server answered another login than ours")]
    Nonce,
    /// It asks for too much work.
    #[error("the server asks for {0} rounds of hashing")]
    Iterations(u32),
    /// It does not know the password.
    #[error("the server cannot prove that it knows the password")]
    Signature,
}

/// A login after its first message.
#[derive(Debug)]
pub(super) struct Login {
    bare: String,
    nonce: String,
}

/// A login after its proof.
pub(super) struct Proven {
    server_key: hmac::Key,
    message: String,
}

impl Login {
    /// Starts a login with a nonce that no other login has.
    pub(super) fn new(user: &str, nonce: String) -> Login {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        Login { bare: format!("n={user},r={nonce}"), nonce }
    }

    /// The client's first message.
    pub(super) fn first(&self) -> String {
        format!("n,,{}", self.bare)
    }

    /// The answer to the server's first message. Hashing takes a while.
    pub(super) fn prove(
        self,
        password: &str,
        challenge: &str,
    ) -> Result<(String, Proven), Distrust> {
        let mut parts = challenge.split(',');
        let mut part = |name: &str| {
            let value = parts.next().and_then(|part| part.strip_prefix(name));
            value.ok_or(Distrust::Garbled)
        };
        let (nonce, salt, iterations) = (part("r=")?, part("s=")?, part("i=")?);
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(Distrust::Nonce);
        }
        // Some servers pad too much.
        let salt = STANDARD_NO_PAD.decode(salt.trim_end_matches('='));
        let salt = salt.map_err(|_| Distrust::Garbled)?;
        let rounds: u32 = iterations.parse().map_err(|_| Distrust::Garbled)?;
        let rounds = match NonZeroU32::new(rounds) {
            None => return Err(Distrust::Garbled),
            Some(rounds) if rounds.get() > MOST_ITERATIONS => {
                return Err(Distrust::Iterations(rounds.get()));
            }
            Some(rounds) => rounds,
        };
        let mut salted = [0; digest::SHA256_OUTPUT_LEN];
        let (algorithm, password) = (pbkdf2::PBKDF2_HMAC_SHA256, password.as_bytes());
        pbkdf2::derive(algorithm, rounds, &salt, password, &mut salted);
        let salted = hmac::Key::new(hmac::HMAC_SHA256, &salted);
        let client_key = hmac::sign(&salted, b"Client Key");
        let stored = digest::digest(&digest::SHA256, client_key.as_ref());
        let stored = hmac::Key::new(hmac::HMAC_SHA256, stored.as_ref());
        let last = format!("{NO_BINDING},r={nonce}");
        let message = format!("{},{challenge},{last}", self.bare);
        let signature = hmac::sign(&stored, message.as_bytes());
        let pairs = client_key.as_ref().iter().zip(signature.as_ref());
        let proof: Vec<u8> = pairs.map(|(key, signature)| key ^ signature).collect();
        let server_key = hmac::sign(&salted, b"Server Key");
        let server_key = hmac::Key::new(hmac::HMAC_SHA256, server_key.as_ref());
        Ok((format!("{last},p={}", STANDARD.encode(proof)), Proven { server_key, message }))
    }
}

impl Proven {
    /// Fails unless the server proves that it knows the password.
    pub(super) fn check(&self, last: &str) -> Result<(), Distrust> {
        let signature = last.strip_prefix("v=").ok_or(Distrust::Garbled)?;
        let signature = STANDARD.decode(signature).map_err(|_| Distrust::Garbled)?;
        let verified = hmac::verify(&self.server_key, self.message.as_bytes(), &signature);
        verified.map_err(|_| Distrust::Signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                             s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn login() -> Login {
        Login::new("user", "rOprNGfwEbeRWgbNEkqO".to_owned())
    }

    /// The example of RFC 7677.
    #[test]
    fn the_standards_own_example_comes_out() {
        assert_eq!(login().first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (last, proven) = login().prove("pencil", CHALLENGE).expect("a good challenge");
        assert_eq!(
            last,
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(proven.check("v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        let other = proven.check("v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert_eq!(other, Err(Distrust::Signature));
        assert_eq!(proven.check("e=other-error"), Err(Distrust::Garbled));
    }

    #[test]
    fn commas_and_equals_signs_in_a_name_are_escaped() {
        assert_eq!(Login::new("a,b=c", "x".to_owned()).first(), "n,,n=a=2Cb=3Dc,r=x");
    }

    #[test]
    fn a_server_that_cheats_is_not_told_a_proof() {
        for (challenge, distrust) in [
            ("", Distrust::Garbled),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=W22Z", Distrust::Garbled),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=?,i=1", Distrust::Garbled),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=0", Distrust::Garbled),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=-1", Distrust::Garbled),
            ("r=rOprNGfwEbeRWgbNEkqO,s=W22Z,i=1", Distrust::Nonce),
            ("r=another,s=W22Z,i=1", Distrust::Nonce),
            ("r=rOprNGfwEbeRWgbNEkqOx,s=W22Z,i=4000000000", Distrust::Iterations(4_000_000_000)),
        ] {
            let refused = login().prove("pencil", challenge).map(|(last, _)| last);
            assert_eq!(refused, Err(distrust), "{challenge}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_challenge_panics(challenge in "(r=rOprNGfwEbeRWgbNEkqO)?.{0,40},s=.{0,8},i=[0-9]{0,3}") {
            let _ = login().prove("pencil", &challenge);
        }
    }
}
