# Bunny, Ruby's client: confirms, a topic exchange, dead letters, returned messages, errors.

require "bunny"

connection = Bunny.new(ARGV[0])
connection.start
channel = connection.create_channel
channel.confirm_select
dead = channel.queue("bunny-dead", durable: true)
queue = channel.queue("bunny", durable: true, arguments: {
  "x-dead-letter-exchange" => "", "x-dead-letter-routing-key" => "bunny-dead"
})
exchange = channel.topic("bunny-topic", durable: true)
queue.bind(exchange, routing_key: "a.#")
100.times do |number|
  headers = { "number" => number, "float" => 1.5, "nested" => { "true" => true, "list" => [1, "x"] } }
  exchange.publish("m#{number}", routing_key: "a.b", persistent: true, headers: headers)
end
puts "confirmed #{channel.wait_for_confirms} #{channel.unconfirmed_set.size}"

came = Queue.new
channel.prefetch(10)
consumer = queue.subscribe(manual_ack: true) do |delivery, properties, _body|
  if properties.headers["number"] % 10 == 0
    channel.nack(delivery.delivery_tag, false, false)
  else
    channel.ack(delivery.delivery_tag)
  end
  came << properties.headers["nested"]
end
puts "came #{100.times.map { came.pop }.uniq}"
consumer.cancel
letters = []
200.times do
  _, properties, body = dead.pop
  body ? letters << properties.headers["x-death"][0]["reason"] : sleep(0.05)
  break if letters.size == 10
end
puts "dead #{letters.size} #{letters.uniq}"

returned = Queue.new
nameless = channel.default_exchange
nameless.on_return { |info, _, body| returned << "#{info.reply_code} #{body}" }
nameless.publish("nobody's", routing_key: "nowhere", mandatory: true)
puts "returned #{returned.pop}"
begin
  connection.create_channel.queue("bunny", durable: false)
rescue Bunny::PreconditionFailed
  puts "refused"
end
puts "left #{queue.message_count}"
connection.close
puts "closed"
