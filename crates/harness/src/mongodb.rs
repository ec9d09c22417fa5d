//! MongoDB, one server or a replica set.

use crate::launch::Launch;
use crate::recipe::{Member, Recipe};
use crate::version::downloads;
use crate::{Cluster, Failure, Skipped, directory};
use async_trait::async_trait;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use self::Value::{Array, Bool, Int, Map, Text};

const CURRENT: &str = "mongodb-6.0.5";
/// The replica set's name.
pub const SET: &str = "rs0";
/// The time-out of a probe. A stopped server accepts connections and never answers.
const PROBE_WITHIN: Duration = Duration::from_secs(2);
/// The time for creating a set, which waits for its members.
const INITIATE_WITHIN: Duration = Duration::from_secs(15);
/// The longest answer. Answers to the commands here are shorter.
const LONGEST: u32 = 1 << 20;

/// Options of the servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// More arguments, such as `--keyFile` and `--tlsMode`.
    pub arguments: Vec<String>,
    /// True if the server is in no replica set.
    pub standalone: bool,
    /// True if a majority has a write only once it is journaled. This is MongoDB's default.
    pub journaled: bool,
    /// How long the members wait for a silent primary before they elect another.
    pub election: Duration,
    /// True if servers can be [isolated](Cluster::isolate) from each other. Needs root, and `ip` of
    /// iproute2.
    pub partitions: bool,
    /// How long the servers may take to be ready.
    pub ready_within: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            arguments: Vec::new(),
            standalone: false,
            journaled: true,
            // MongoDB's default of ten seconds is too long for tests; a busy machine needs more
            // than one.
            election: Duration::from_secs(2),
            partitions: false,
            // Ten times the longest time seen, because a test machine can be busy.
            ready_within: Duration::from_secs(60),
        }
    }
}

/// MongoDB servers, with the functions of a [`Cluster`].
#[derive(Debug)]
pub struct Mongodb {
    cluster: Cluster,
}

impl Mongodb {
    /// Starts one server, which is a replica set of its own unless it is standalone.
    ///
    /// Fails with [`Failure::Skipped`] if MongoDB is not installed, and also if the server does not
    /// get ready.
    ///
    /// # Cancel safety
    /// A server that was started is ended.
    pub async fn single(options: Options) -> Result<Mongodb, Failure> {
        Mongodb::set(1, options).await
    }

    /// Starts a replica set; with three servers, one may fail.
    ///
    /// Fails as [`single`](Mongodb::single) does.
    ///
    /// # Cancel safety
    /// Servers that were started are ended.
    pub async fn set(size: usize, options: Options) -> Result<Mongodb, Failure> {
        let partitions = options.partitions;
        let recipe = Arc::new(MongodbRecipe::find(options)?);
        Ok(Mongodb { cluster: Cluster::start(recipe, size, partitions).await? })
    }

    /// Makes a primary step down for at least `wait`.
    ///
    /// It steps down even if no successor has caught up.
    ///
    /// Fails with [`Failure::System`] if it is not the primary, or does not answer.
    ///
    /// # Cancel safety
    /// It is then unknown whether it steps down.
    pub async fn step_down(&self, index: usize, wait: Duration) -> Result<(), Failure> {
        let seconds = i32::try_from(wait.as_secs().max(1)).unwrap_or(i32::MAX);
        let asked = [
            ("replSetStepDown", Int(seconds)),
            ("secondaryCatchUpPeriodSecs", Int(seconds.min(1))),
            ("force", Bool(true)),
        ];
        let answer = command(self[index].address(), "admin", &asked, INITIATE_WITHIN).await;
        let done = answer.and_then(|answer| match answer.is_ok() {
            true => Ok(()),
            false => Err(io::Error::other(answer.words())),
        });
        done.map_err(Failure::system("asking a primary to step down"))
    }
}

impl Deref for Mongodb {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

#[derive(Debug)]
struct MongodbRecipe {
    options: Options,
    program: PathBuf,
    /// The members' addresses. The set is created from them once they are up.
    members: Mutex<Vec<SocketAddr>>,
}

impl MongodbRecipe {
    fn find(options: Options) -> Result<MongodbRecipe, Skipped> {
        let program = downloads().join(CURRENT).join("mongod");
        if !program.exists() {
            let reason = "it is not installed; scripts/servers does it".to_owned();
            return Err(Skipped { server: "MongoDB".to_owned(), reason });
        }
        Ok(MongodbRecipe { options, program, members: Mutex::default() })
    }

    /// Creates the set. The next check tells if it existed already, or a member was not up yet.
    async fn initiate(&self) {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(first) = members.first() else { return };
        let number = |index: usize| Int(i32::try_from(index).unwrap_or(i32::MAX));
        let member = |(index, address): (usize, &SocketAddr)| {
            Map(vec![("_id", number(index)), ("host", Text(address.to_string()))])
        };
        let millis = |span: Duration| Int(i32::try_from(span.as_millis()).unwrap_or(i32::MAX));
        let settings = vec![
            ("electionTimeoutMillis", millis(self.options.election)),
            ("heartbeatIntervalMillis", millis(self.options.election / 8)),
            // How long a member that is cut off counts as present; ten seconds by default.
            ("heartbeatTimeoutSecs", Int(2)),
        ];
        let config = vec![
            ("_id", Text(SET.to_owned())),
            ("version", Int(1)),
            ("writeConcernMajorityJournalDefault", Bool(self.options.journaled)),
            ("members", Array(members.iter().enumerate().map(member).collect())),
            ("settings", Map(settings)),
        ];
        let asked = [("replSetInitiate", Map(config))];
        let _ = command(*first, "admin", &asked, INITIATE_WITHIN).await;
    }
}

#[async_trait]
impl Recipe for MongodbRecipe {
    fn title(&self) -> &str {
        "MongoDB 6.0.5"
    }

    fn ports(&self) -> usize {
        1
    }

    fn ready_within(&self) -> Duration {
        self.options.ready_within
    }

    fn prepare(&self, members: &[Member], index: usize) -> Result<Launch, Failure> {
        let own = &members[index];
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) =
            members.iter().map(|member| member.address(0)).collect();
        // Small, and without the diagnostics that it would write every second.
        let mut arguments: Vec<String> = [
            ("--dbpath", directory::data(&own.directory).display().to_string()),
            ("--port", own.ports[0].number().to_string()),
            ("--bind_ip", own.host.to_string()),
            ("--wiredTigerCacheSizeGB", "0.25".to_owned()),
            ("--oplogSize", "64".to_owned()),
            ("--setParameter", "diagnosticDataCollectionEnabled=false".to_owned()),
            // How long a secondary waits for a primary that is cut off before it follows another.
            ("--setParameter", "oplogNetworkTimeoutBufferSeconds=1".to_owned()),
            // The same for one that it has only begun to follow. The server's own default is 60 s.
            ("--setParameter", "oplogInitialFindMaxSeconds=5".to_owned()),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        arguments.extend(["--nounixsocket".to_owned(), "--quiet".to_owned()]);
        if !self.options.standalone {
            arguments.extend(["--replSet".to_owned(), SET.to_owned()]);
        }
        arguments.extend(self.options.arguments.iter().cloned());
        Ok(Launch { program: self.program.clone(), arguments, family: false })
    }

    async fn ready(&self, member: &Member) -> bool {
        let Ok(hello) = hello(member.address(0)).await else { return false };
        // A secondary without a known primary serves no writes, nor does one that is about to
        // become primary.
        let follows = hello.yes("secondary")
            && hello.has("primary")
            && !hello.is("primary", &member.address(0).to_string());
        if hello.yes("isWritablePrimary") || follows {
            return true;
        }
        if !self.options.standalone && !hello.has("setName") {
            self.initiate().await;
        }
        false
    }

    async fn leads(&self, member: &Member) -> bool {
        hello(member.address(0)).await.is_ok_and(|hello| hello.yes("isWritablePrimary"))
    }
}

async fn hello(server: SocketAddr) -> io::Result<Answer> {
    command(server, "admin", &[("hello", Int(1))], PROBE_WITHIN).await
}

/// A value of a command.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number.
    Int(i32),
    /// True or false.
    Bool(bool),
    /// Text.
    Text(String),
    /// A list of values.
    Array(Vec<Value>),
    /// Named values.
    Map(Vec<(&'static str, Value)>),
}

/// An answer to a command, as BSON.
#[derive(Clone, Debug)]
pub struct Answer(Vec<u8>);

impl Answer {
    /// Returns true if a field of this name, at any depth, is true.
    #[must_use]
    pub fn yes(&self, name: &str) -> bool {
        self.says(name, &[8], &[1])
    }

    /// Returns true if there is a text field of this name, at any depth.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.says(name, &[2], &[])
    }

    /// Returns true if a field of this name, at any depth, is this text.
    #[must_use]
    pub fn is(&self, name: &str, text: &str) -> bool {
        let length = u32::try_from(text.len() + 1).unwrap_or(u32::MAX);
        self.says(name, &[2], &[&length.to_le_bytes()[..], text.as_bytes(), &[0]].concat())
    }

    /// Returns true if the command succeeded.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.says("ok", &[1], &1f64.to_le_bytes())
    }

    /// The printable characters of the answer, for a message.
    #[must_use]
    pub fn words(&self) -> String {
        let printable = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { ' ' };
        self.0.iter().map(printable).collect()
    }

    fn says(&self, name: &str, kind: &[u8], value: &[u8]) -> bool {
        let element = [kind, name.as_bytes(), &[0], value].concat();
        self.0.windows(element.len()).any(|window| window == element)
    }
}

/// Sends a command over a connection of its own.
///
/// Fails when nothing listens, the connection is lost before the answer is whole, or the answer
/// takes longer than `within`. An error of the server counts as an answer.
///
/// # Cancel safety
/// It is then unknown whether the server acts on it.
pub async fn command(
    server: SocketAddr,
    database: &str,
    command: &[(&'static str, Value)],
    within: Duration,
) -> io::Result<Answer> {
    let asked = command.iter().cloned().chain([("$db", Text(database.to_owned()))]).collect();
    // OP_MSG: its length, its number, the number it answers, its kind, its flags, and one section
    // with a document.
    let mut message = vec![0; 4];
    message.extend([1u32, 0, 2013, 0].map(u32::to_le_bytes).concat());
    message.push(0);
    write_map(&mut message, &asked);
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    message[..4].copy_from_slice(&length.to_le_bytes());
    let conversation = async {
        let mut stream = TcpStream::connect(server).await?;
        stream.write_all(&message).await?;
        let length = stream.read_u32_le().await?;
        if !(16..LONGEST).contains(&length) {
            return Err(io::Error::other("no answer of MongoDB's"));
        }
        let mut answer = vec![0; length as usize - 4];
        stream.read_exact(&mut answer).await?;
        Ok(Answer(answer))
    };
    tokio::time::timeout(within, conversation).await?
}

/// Writes BSON: its length, its elements, a zero.
fn write_map(into: &mut Vec<u8>, map: &Vec<(&'static str, Value)>) {
    write_document(into, &mut map.iter().map(|(name, value)| ((*name).to_owned(), value)));
}

fn write_document(into: &mut Vec<u8>, elements: &mut dyn Iterator<Item = (String, &Value)>) {
    let start = into.len();
    into.extend([0; 4]);
    for (name, value) in elements {
        let kind = match value {
            Int(_) => 0x10,
            Bool(_) => 0x08,
            Text(_) => 0x02,
            Array(_) => 0x04,
            Map(_) => 0x03,
        };
        into.push(kind);
        into.extend(name.as_bytes());
        into.push(0);
        match value {
            Int(number) => into.extend(number.to_le_bytes()),
            Bool(yes) => into.push(u8::from(*yes)),
            Text(text) => {
                let length = u32::try_from(text.len() + 1).expect("commands of tests are short");
                into.extend(length.to_le_bytes());
                into.extend(text.as_bytes());
                into.push(0);
            }
            Array(values) => {
                let numbered = values.iter().enumerate();
                write_document(into, &mut numbered.map(|(at, value)| (at.to_string(), value)));
            }
            Map(map) => write_map(into, map),
        }
    }
    into.push(0);
    let length = u32::try_from(into.len() - start).expect("commands of tests are short");
    into[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_written_as_the_specification_shows_them() {
        let mut written = Vec::new();
        write_map(&mut written, &vec![("hello", Text("world".to_owned()))]);
        assert_eq!(written, b"\x16\0\0\0\x02hello\0\x06\0\0\0world\0\0");
    }

    #[test]
    fn fields_of_an_answer_are_found() {
        let answer = Answer(b"\x08isWritablePrimary\0\x01\x08secondary\0\0\x02setName\0".to_vec());
        assert!(answer.yes("isWritablePrimary") && !answer.yes("secondary"));
        assert!(answer.has("setName") && !answer.is_ok());
    }
}
