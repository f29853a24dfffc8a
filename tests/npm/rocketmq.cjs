// One walk through RocketMQ with Apache's client for Node: ENDPOINTS SSL ACCESS_KEY SECRET.
// Prints what each kind of message and consumer brought.
"use strict";

const { setTimeout: sleep } = require("node:timers/promises");
const { Producer, PushConsumer, SimpleConsumer, ConsumeResult } = require("rocketmq-client-nodejs");

const [endpoints, sslEnabled, accessKey, accessSecret] = process.argv.slice(2);
const COMMIT = 1;
const ROLLBACK = 2;
const silent = () => {};
// Its own would write into the home directory.
const logger = { info: silent, debug: silent, warn: console.error, error: console.error };
const options = {
  endpoints,
  namespace: "",
  sslEnabled: sslEnabled === "tls",
  sessionCredentials: accessKey ? { accessKey, accessSecret } : undefined,
  logger,
};

const text = (message) => message.body.toString();

async function taken(topic, count, group = `${topic}-group`, filter = "*") {
  const subscriptions = new Map([[topic, filter]]);
  const consumer = new SimpleConsumer({
    ...options,
    consumerGroup: group,
    subscriptions,
    awaitDuration: 2000,
  });
  await consumer.startup();
  const got = [];
  for (let polls = 0; got.length < count && polls < 20; polls++) {
    for (const message of await consumer.receive(16, 15000)) {
      got.push(message);
      await consumer.ack(message);
    }
  }
  await consumer.shutdown();
  return got;
}

async function pushed(topic, count) {
  const got = [];
  let all;
  const done = new Promise((resolve) => (all = resolve));
  const consumer = new PushConsumer({
    ...options,
    consumerGroup: `${topic}-push`,
    subscriptions: new Map([[topic, "*"]]),
    messageListener: {
      async consume(message) {
        const first = message.deliveryAttempt === 1;
        got.push([text(message), message.deliveryAttempt]);
        if (got.length === count) all();
        const fails = first && text(message).startsWith("!");
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
  await done;
  await sleep(200); // its last answer is under way
  return got;
}

async function main() {
  const found = {};
  const checker = { check: async (message) => (text(message) === "unsure" ? COMMIT : ROLLBACK) };
  const producer = new Producer({ ...options, checker });
  await producer.startup();

  const sent = await producer.send({
    topic: "plain", tag: "blue", keys: ["k1"], properties: new Map([["color", "blau"]]),
    body: Buffer.from("grüße"),
  });
  const [plain] = await taken("plain", 1);
  found.plain = [
    plain.messageId === sent.messageId, text(plain), plain.tag, plain.keys,
    Object.fromEntries(plain.properties), plain.deliveryAttempt,
  ];

  for (const tag of ["red", "blue", "red"]) {
    await producer.send({ topic: "tags", tag, body: Buffer.from(tag) });
  }
  found.tags = (await taken("tags", 2, "tags-group", "red")).map(text);

  for (const body of ["a1", "b1", "a2", "b2", "a3"]) {
    await producer.send({ topic: "fifo", messageGroup: body[0], body: Buffer.from(body) });
  }
  const ordered = (await taken("fifo", 5)).map(text);
  found.fifo = [ordered.filter((each) => each[0] === "a"), ordered.filter((each) => each[0] === "b")];

  const start = Date.now();
  const gone = await producer.send({ topic: "delay", delay: 1500, body: Buffer.from("recalled") });
  await producer.send({ topic: "delay", delay: 1500, body: Buffer.from("late") });
  await producer.recallMessage("delay", gone.recallHandle);
  found.delay = [(await taken("delay", 1)).map(text), Date.now() - start >= 1500];

  for (const body of ["committed", "rolled back", "unsure"]) {
    const transaction = producer.beginTransaction();
    await producer.send({ topic: "transaction", body: Buffer.from(body) }, transaction);
    if (body === "committed") await transaction.commit();
    if (body === "rolled back") await transaction.rollback();
  }
  found.transaction = (await taken("transaction", 2)).map(text);

  for (const body of ["x", "!y", "z"]) {
    await producer.send({ topic: "push", body: Buffer.from(body) });
  }
  found.push = (await pushed("push", 4)).sort();
  for (const body of ["1", "2", "3"]) {
    await producer.send({ topic: "push-fifo", messageGroup: "g", body: Buffer.from(body) });
  }
  found.pushFifo = await pushed("push-fifo", 3);

  try {
    await producer.send({ topic: "nowhere", body: Buffer.from("x") });
  } catch (error) {
    found.nowhere = error.message;
  }
  await producer.shutdown();
  console.log(JSON.stringify(found));
  process.exit(0); // a push consumer waits for its long polls
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
