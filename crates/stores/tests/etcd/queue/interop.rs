//! etcd's own clients in the same lines.

use super::*;
