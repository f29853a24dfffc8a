// RabbitMQ's Java client: what comes of confirms, priorities, headers, transactions, replies, errors.

import com.rabbitmq.client.AMQP;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.RpcClient;
import java.io.IOException;
import java.math.BigDecimal;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class Client {
    static final int COUNT = 500;

    public static void main(String[] arguments) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(arguments[0]);
        try (Connection connection = factory.newConnection("java")) {
            consumes(connection);
            transacts(connection);
            isAnswered(connection);
            isRefused(connection);
        }
        System.out.println("closed");
    }

    static void consumes(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        Map<String, Object> declared = new HashMap<>();
        declared.put("x-max-priority", 5);
        channel.queueDeclare("java", true, false, false, declared);
        channel.confirmSelect();
        Map<String, Object> headers = new HashMap<>();
        headers.put("decimal", new BigDecimal("1.5"));
        headers.put("date", new Date(86_400_000L));
        headers.put("list", Arrays.asList(1, "x", new HashMap<String, Object>()));
        for (int number = 0; number < COUNT; number++) {
            AMQP.BasicProperties properties = new AMQP.BasicProperties.Builder()
                .deliveryMode(2).priority(number % 6).headers(headers).build();
            channel.basicPublish("", "java", properties, ("m" + number).getBytes());
        }
        System.out.println("confirmed " + channel.waitForConfirms(20_000));
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        channel.basicQos(50);
        channel.basicConsume("java", false, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                    throws IOException {
                getChannel().basicAck(envelope.getDeliveryTag(), false);
                Date date = (Date) properties.getHeaders().get("date");
                came.add(properties.getPriority() + " " + properties.getHeaders().get("decimal") + " "
                    + properties.getHeaders().get("list") + " " + date.getTime() + " " + envelope.isRedeliver());
            }
        });
        System.out.println("first " + came.poll(20, TimeUnit.SECONDS));
        int others = 0;
        while (others < COUNT - 1 && came.poll(20, TimeUnit.SECONDS) != null) {
            others++;
        }
        System.out.println("others " + others);
        channel.close();
    }

    static void transacts(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        channel.txSelect();
        channel.basicPublish("", "java", null, "taken back".getBytes());
        channel.txRollback();
        channel.basicPublish("", "java", null, "committed".getBytes());
        channel.txCommit();
        System.out.println(new String(channel.basicGet("java", true).getBody()));
        channel.txCommit();
        System.out.println("left " + channel.messageCount("java"));
        channel.close();
    }

    static void isAnswered(Connection connection) throws Exception {
        Channel serves = connection.createChannel();
        serves.queueDeclare("rpc", false, true, true, null);
        serves.basicConsume("rpc", true, new DefaultConsumer(serves) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, AMQP.BasicProperties properties, byte[] body)
                    throws IOException {
                AMQP.BasicProperties reply = new AMQP.BasicProperties.Builder()
                    .correlationId(properties.getCorrelationId()).build();
                getChannel().basicPublish("", properties.getReplyTo(), reply, "pong".getBytes());
            }
        });
        RpcClient caller = new RpcClient(connection.createChannel(), "", "rpc", 20_000);
        System.out.println(caller.stringCall("ping"));
    }

    static void isRefused(Connection connection) throws Exception {
        Channel channel = connection.createChannel();
        try {
            channel.queueDeclare("java", true, false, false, null);
        } catch (IOException error) {
            System.out.println(channel.getCloseReason().getReason() instanceof AMQP.Channel.Close
                ? ((AMQP.Channel.Close) channel.getCloseReason().getReason()).getReplyCode() : -1);
        }
        System.out.println("open " + connection.isOpen());
    }
}
