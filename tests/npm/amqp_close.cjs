// Closes connections of npm's amqplib while it writes: URL. Prints how many have heard that they are
// closed; a reset in place of close-ok leaves amqplib waiting for ever.
"use strict";

const amqplib = require("amqplib");

const ROUNDS = 20;
const HEARTBEAT = Buffer.from([8, 0, 0, 0, 0, 0, 0, 0xce]);

async function main([url]) {
  const body = Buffer.alloc(100_000);
  let closed = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const connection = await amqplib.connect(url);
    connection.on("error", () => {});
    const channel = await connection.createChannel();
    await channel.assertQueue("busy", { durable: true });
    for (let number = 0; number < 30; number++) channel.sendToQueue("busy", body);
    const closing = connection.close().then(() => closed++);
    const writing = setInterval(() => connection.connection.stream.write(HEARTBEAT), 0);
    await Promise.race([closing, new Promise((resolve) => setTimeout(resolve, 2_000))]);
    clearInterval(writing);
    if (closed !== round + 1) break;
  }
  console.log(JSON.stringify({ closed }));
  process.exit(0);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
