// Publishes with confirms through one of npm's AMQP clients: PACKAGE URL ROUNDS. Every round sends
// concurrently to a durable queue, an exclusive one and to nowhere; prints how many were confirmed.
"use strict";

const PER_TARGET = 30;

const openers = {
  async amqplib(name, url) {
    const connection = await require(name).connect(url);
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue("durable", { durable: true });
    const { queue } = await channel.assertQueue("", { exclusive: true });
    const send = (key, mandatory) =>
      new Promise((resolve, reject) =>
        channel.publish("", key, Buffer.from("x"), { mandatory }, (error) =>
          error === null || error === undefined ? resolve() : reject(error)
        )
      );
    return { queue, send, close: () => connection.close() };
  },

  async "rabbitmq-client"(name, url) {
    const { Connection } = require(name);
    const connection = new Connection(url);
    const channel = await connection.acquire();
    await channel.queueDeclare({ queue: "durable", durable: true });
    const { queue } = await channel.queueDeclare({ queue: "", exclusive: true });
    await channel.confirmSelect();
    channel.on("basic.return", () => {});
    const send = (routingKey, mandatory) => channel.basicPublish({ routingKey, mandatory }, "x");
    return { queue, send, close: async () => (await channel.close(), connection.close()) };
  },

  async "@cloudamqp/amqp-client"(name, url) {
    const { AMQPClient } = require(name);
    const client = new AMQPClient(url);
    const channel = await (await client.connect()).channel();
    await channel.queueDeclare("durable", { durable: true });
    const { name: queue } = await channel.queueDeclare("", { exclusive: true });
    await channel.confirmSelect();
    channel.onReturn = () => {};
    const send = (key, mandatory) => channel.basicPublish("", key, "x", {}, mandatory);
    return { queue, send, close: () => client.close() };
  },
};

async function main([name, url, rounds]) {
  const { queue, send, close } = await openers[name](name, url);
  let confirmed = 0;
  for (let round = 0; round < Number(rounds); round++) {
    const sent = [];
    for (let number = 0; number < PER_TARGET; number++) {
      for (const key of ["durable", queue, "nowhere"]) sent.push(send(key, number % 2 === 0));
    }
    confirmed += (await Promise.all(sent)).length;
  }
  await close();
  console.log(JSON.stringify({ confirmed }));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
