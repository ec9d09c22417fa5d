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

// By primary key it would evaluate a function for each document there is, while everybody waits.
const Table = require(path.join(library, 'table.js'));
const Selection = require(path.join(library, 'selection.js'));
const slow = { getAll: Table.prototype.getAll, between: Table.prototype.between };
const texts = (...values) => values.every((value) => typeof value === 'string');

Table.prototype.getAll = function (keys, options, ...words) {
  if (options.index !== undefined || !texts(...keys)) {
    return slow.getAll.call(this, keys, options, ...words);
  }
  const wanted = new Set(keys);
  const documents = Object.values(this.documents).filter(({ doc }) => wanted.has(doc.id));
  return Promise.resolve(new Selection(documents, this, {}));
};

Table.prototype.between = function (left, right, options, ...words) {
  if (![undefined, 'id'].includes(options.index) || !texts(left, right)) {
    return slow.between.call(this, left, right, options, ...words);
  }
  const after = options.left_bound === 'open' ? (id) => id > left : (id) => id >= left;
  const before = options.right_bound === 'closed' ? (id) => id <= right : (id) => id < right;
  const documents = Object.values(this.documents)
    .filter(({ doc }) => texts(doc.id) && after(doc.id) && before(doc.id));
  const { left_bound, right_bound } = options;
  return Promise.resolve(new Selection(documents, this, {
    type: 'TABLE_SLICE',
    operation: 'between',
    index: 'id',
    args: { left, right },
    options: { left_bound, right_bound },
  }));
};

const Server = require(path.join(library, 'index.js'));
new Server({ 'driver-port': Number(port) });
