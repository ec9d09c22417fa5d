//! `etcd grpc-proxy`, between clients and a server.

use crate::directory::Directory;
use crate::launch::Launch;
use crate::process::Process;
use crate::{Failure, Port};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// The time until it listens.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A gRPC proxy of etcd. It ends when it is dropped.
#[derive(Debug)]
pub struct GrpcProxy {
    port: Port,
    process: Process,
    _directory: Directory,
}

impl GrpcProxy {
    pub(crate) async fn start(program: &Path, server: SocketAddr) -> Result<GrpcProxy, Failure> {
        let port = Port::claim().map_err(Failure::system("claiming a port"))?;
        let directory = Directory::create("grpc-proxy")?;
        let arguments = vec![
            "grpc-proxy".to_owned(),
            "start".to_owned(),
            format!("--endpoints={server}"),
            format!("--listen-addr={}", port.address()),
        ];
        let launch = Launch { program: program.to_owned(), arguments, family: false };
        let process = Process::new(launch, directory.member(0)?);
        process.start().map_err(Failure::system("starting etcd grpc-proxy"))?;
        let proxy = GrpcProxy { port, process, _directory: directory };
        proxy.listens().await?;
        Ok(proxy)
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    async fn listens(&self) -> Result<(), Failure> {
        let began = Instant::now();
        while TcpStream::connect(self.address()).await.is_err() {
            if began.elapsed() > READY_WITHIN {
                let server = "etcd grpc-proxy".to_owned();
                return Err(Failure::Late { server, awaited: "a listener", log: String::new() });
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

impl Drop for GrpcProxy {
    fn drop(&mut self) {
        // The proxy may have ended by itself.
        let _ = self.process.kill();
    }
}
