// Serves reqlite, an emulator of RethinkDB, on the loopback address:
//
//   node serve.js DIRECTORY-OF-NODE_MODULES PORT
//
// It listens on every interface by itself, hence the wrapped `listen`. And it evaluates queries in small steps that
// mix with those of others, so that of two conditional writes at once both would win; the real server makes each
// atomic. So a query begins here when the one before has its answer.
'use strict';

const path = require('path');
const net = require('net');
const os = require('os');

// One thread serves all tests, and other things may be compiled meanwhile. Not everybody may.
try {
  os.setPriority(-5);
} catch {}

const [modules, port] = process.argv.slice(2);
const library = path.join(path.resolve(modules), 'reqlite', 'lib');

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...others) {
  return listen.call(this, port, '127.0.0.1', ...others);
};

const Query = require(path.join(library, 'query.js'));
const run = Query.prototype.run;
let last = Promise.resolve();
Query.prototype.run = function (...words) {
  const answer = last.then(() => run.apply(this, words));
  last = answer.catch(() => undefined);
  return answer;
};

const Server = require(path.join(library, 'index.js'));
new Server({ 'driver-port': Number(port) });
