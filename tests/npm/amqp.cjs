// One walk through AMQP 0-9-1 with npm's amqplib: URL. Prints one line of JSON, or fails.
"use strict";

const amqplib = require("amqplib");

async function main([url]) {
  const connection = await amqplib.connect(url);
  const channel = await connection.createConfirmChannel();
  const { queue } = await channel.assertQueue("from node", { durable: true });
  await channel.assertExchange("events", "topic", { durable: true });
  await channel.bindQueue(queue, "events", "order.#");
  await channel.prefetch(1);

  const headers = { number: 7, text: "grüße", nested: { list: [1, true, null] } };
  channel.publish("events", "order.new", Buffer.from("one"), { persistent: true, headers });
  channel.publish("events", "invoice.new", Buffer.from("for nobody"));
  channel.sendToQueue(queue, Buffer.from("two"), { messageId: "m2" });
  await channel.waitForConfirms();

  const got = [];
  await new Promise((resolve, reject) => {
    channel.consume(queue, (message) => {
      if (message === null) return reject(new Error("the consumer was cancelled"));
      const { fields, properties, content } = message;
      got.push({ text: content.toString(), redelivered: fields.redelivered });
      if (got.length === 1) return channel.nack(message);
      channel.ack(message);
      if (got.length === 2) Object.assign(got[1], { headers: properties.headers });
      if (got.length === 3) Object.assign(got[2], { id: properties.messageId });
      if (got.length === 3) resolve();
    });
  });
  const left = await channel.checkQueue(queue);

  const other = await connection.createChannel();
  const refused = await new Promise((resolve) => {
    other.on("error", (error) => resolve(error.code));
    other.checkQueue("not there").catch(() => {});
  });
  await connection.close();
  console.log(JSON.stringify({ got, left: left.messageCount, refused }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
